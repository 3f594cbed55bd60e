"""The config.pbtxt of each model that is stored in a model's ConfigMap. Pure.

The layout is that of `fetch.source_repository`: either the files of one model, or a folder for each of several models.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from halcyon.api.spec import Spec
from halcyon.render import model_overlay
from halcyon.render.revision import Content

CONFIG = "config.pbtxt"
_MODEL_FILE = re.compile(rf"([^/]+)/((?:0|[1-9][0-9]*)/.+|{re.escape(CONFIG)})")
"""Pattern of the paths of files that only a model's folder contains. Its first group is the folder's name."""
_VERSION_FILE = re.compile(r"(0|[1-9][0-9]*)/.+")


@dataclass(frozen=True)
class ConfigFile:
    """A config.pbtxt in a ConfigMap."""

    key: str
    content: bytes


@dataclass(frozen=True)
class ConfigMapModels:
    """Models in a ConfigMap."""

    served: ConfigFile | None = None
    """The config.pbtxt of the served model; None if there is none, or if the model isn't stored in a ConfigMap."""
    companions: Mapping[str, ConfigFile | None] = field(default_factory=dict)
    """The config.pbtxt of each other model of the repository, by the model's name."""
    versions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Version numbers of each model that have a folder, by the model's name."""
    has_model: bool = False
    """Whether the ConfigMap holds the served model."""

    def configs(self, served: str) -> dict[str, bytes | None]:
        """Return the content of the config.pbtxt of each model, by name. `served` is the name of the served model."""
        files = {served: self.served, **self.companions}
        return {name: None if file is None else file.content for name, file in files.items()}


def models(name: str, spec: Spec, content: Content | None) -> ConfigMapModels:
    """Return the models in the ConfigMap of the ModelDeployment with this name and spec."""
    source = spec.model.source.config_map
    if content is None or source is None:
        return ConfigMapModels()
    keys = {item.path: item.key for item in source.items}
    served = model_overlay.model_name(name, spec)
    folders = sorted({match[1] for path in keys if (match := _MODEL_FILE.fullmatch(path))})
    if CONFIG in keys or any(map(_VERSION_FILE.fullmatch, keys)):
        prefixes = {served: ""}
    elif len(folders) == 1:
        prefixes = {served: f"{folders[0]}/"}
    else:
        prefixes = {folder: f"{folder}/" for folder in folders}
    if served not in prefixes:
        return ConfigMapModels()
    files = {name: _file(keys.get(prefix + CONFIG), content) for name, prefix in prefixes.items()}
    versions = {name: _versions(keys, prefix) for name, prefix in prefixes.items()}
    return ConfigMapModels(files.pop(served), files, versions, has_model=True)


def _versions(paths: Iterable[str], prefix: str) -> tuple[int, ...]:
    relative = (path.removeprefix(prefix) for path in paths if path.startswith(prefix))
    return tuple(sorted({int(match[1]) for path in relative if (match := _VERSION_FILE.fullmatch(path))}))


def _file(key: str | None, content: Content) -> ConfigFile | None:
    if key is None:
        return None
    if key in content.data:
        return ConfigFile(key, content.data[key].encode())
    try:
        return ConfigFile(key, base64.b64decode(content.binary[key])) if key in content.binary else None
    except binascii.Error:
        return None
