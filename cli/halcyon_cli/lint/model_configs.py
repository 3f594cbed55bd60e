"""Check of the config.pbtxt in ConfigMaps that are in the same files as the ModelDeployments that use them. Pure.

Out of scope: ConfigMaps that exist only in a cluster, which the operator checks before a pod starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from halcyon.api.spec import Spec
from halcyon.control.objects import config_map_model
from halcyon.model_config import spec_check
from halcyon.model_config.errors import ModelError
from halcyon.render import model_overlay
from halcyon.render.revision import Content
from halcyon_cli import manifest_loader

_HEAD = "spec.model.source.configMap.name"


@dataclass(frozen=True)
class ConfigMapFile:
    """A ConfigMap in a manifest."""

    namespace: str
    """Namespace in the manifest; empty if the manifest names none."""
    name: str
    content: Content


def config_maps(texts: Iterable[str]) -> tuple[ConfigMapFile, ...]:
    """Return the ConfigMaps in YAML or JSON texts. Texts with errors are skipped, because `checks` reports them."""
    maps: list[ConfigMapFile] = []
    for text in texts:
        if "ConfigMap" not in text:
            continue
        try:
            documents = list(manifest_loader.documents(text))
        except (yaml.YAMLError, RecursionError, ValueError):
            continue
        maps += (config_map for document in documents for item in _items(document) for config_map in _config_map(item))
    return tuple(maps)


def problems(spec: Spec, *, namespace: str, name: str, maps: Iterable[ConfigMapFile]) -> Iterator[tuple[str, str]]:
    """Yield (rule, message) for the config.pbtxt of a ModelDeployment, if its ConfigMap is among these."""
    source = spec.model.source.config_map
    candidates = [config_map for config_map in maps if source is not None and config_map.name == source.name]
    candidates = [
        config_map
        for config_map in candidates
        if not config_map.namespace or not namespace or config_map.namespace == namespace
    ]
    if source is None or not candidates:
        return
    chosen = next((config_map for config_map in candidates if config_map.namespace == namespace), candidates[0])
    repository = config_map_model.models(name, spec, chosen.content)
    overlay = model_overlay.build(name, spec)
    configs = repository.configs(overlay.model_name)
    if repository.has_model and (problem := spec_check.problem_of_repository(overlay, configs, repository.versions)):
        yield "model-config", f"{_HEAD} is {source.name}: {problem}"
    if repository.has_model and not spec.runtime.gpus:
        for model in _models_on_gpus(configs):
            yield (
                "missing-gpu",
                (
                    f"{_HEAD} is {source.name}: config.pbtxt of {model} has an instance_group with KIND_GPU or gpus, and pods of "
                    "this spec have no GPU, so Triton can't load it; set spec.runtime.resources.limits, for example "
                    "nvidia.com/gpu: 1, or write kind: KIND_CPU"
                ),
            )
    if (file := repository.served) is None:
        return
    content, head = file.content, f"{_HEAD} is {source.name}, and its key {file.key}"
    if not spec_check.is_available():
        yield "unchecked-config", f"{head} was not checked: install the extra bench of halcyon-cli"
    elif len(content) > spec_check.MAX_BYTES:
        yield "unchecked-config", f"{head} was not checked: it is above {spec_check.MAX_BYTES} bytes"
    elif problem := spec_check.problem(content, overlay):
        yield "model-config", f"{head}: {problem}"
    elif doubt := spec_check.doubt(content, overlay):
        yield "unknown-config-field", f"{head}: {doubt} (valid only if this Triton is newer than halcyon)"


def _models_on_gpus(configs: Mapping[str, bytes | None]) -> Iterator[str]:
    """Yield the names of models whose config.pbtxt places an instance on a GPU. Invalid files are ignored."""
    if not spec_check.is_available():
        return
    from halcyon.model_config import config_pbtxt, model_config_proto  # noqa: PLC0415  # needs the extra bench

    on_gpu = model_config_proto.module().ModelInstanceGroup.KIND_GPU
    for name, content in configs.items():
        try:
            config = config_pbtxt.parse(config_pbtxt.as_triton_reads(content or b""), with_unknown=True)
        except ModelError:
            continue
        if any(group.kind == on_gpu or group.gpus for group in config.instance_group):
            yield name


def _items(document: Any) -> Iterator[Any]:  # any YAML
    if (
        isinstance(document, dict)
        and str(document.get("kind")).endswith("List")
        and isinstance(document.get("items"), list)
    ):
        yield from document["items"]
    else:
        yield document


def _config_map(document: Any) -> Iterator[ConfigMapFile]:  # any YAML
    if not isinstance(document, dict) or document.get("kind") != "ConfigMap":
        return
    meta = document.get("metadata")
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str):
        return
    content = Content(data=_texts(document.get("data")), binary=_texts(document.get("binaryData")))
    yield ConfigMapFile(str(meta.get("namespace") or ""), meta["name"], content)


def _texts(value: object) -> Mapping[str, str]:
    if not isinstance(value, dict):
        return {}
    return {str(key): text for key, text in value.items() if isinstance(text, str)}
