"""Check of an ensemble's tensors and versions against its steps, with the rules of Triton.

Without the check, an error would appear only in Triton's log. Only rules common to all Triton versions are checked.
Source: triton-inference-server/core, src/ensemble_scheduler/ensemble_utils.cc and src/model_config_utils.cc.

Triton may complete the tensors and shapes of an incomplete model configuration. Tensors are therefore compared only
with steps whose configuration is complete.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from halcyon.fetch import auto_complete
from halcyon.fetch.mounted_source import ModelFolder
from halcyon.model_config import config_pbtxt, ensemble, model_config_proto
from halcyon.model_config.config_pbtxt import FILE
from halcyon.model_config.errors import ModelError
from halcyon.model_config.model_config_proto import ModelConfig

_Step: TypeAlias = Any
"""Type of the Protobuf message `inference.ModelEnsembling.Step`. The generated code has no type annotations."""
_MAX_SHOWN = 8


def problem(configs: Mapping[str, bytes | None], folders: Mapping[str, ModelFolder]) -> str:
    """Return a sentence about the first error in the steps of an ensemble that Triton would reject; empty if none is found.

    `configs` contains each model's config.pbtxt, by name; None for a model without the file. `folders` contains the
    models' folders, by name. Each step must be one of these models.
    """
    parsed = {name: _parsed(content) for name, content in configs.items()}
    for name, config in parsed.items():
        if config is None or not config.HasField("ensemble_scheduling"):
            continue
        complete = {
            step.model_name: _if_complete(parsed[step.model_name], configs[step.model_name], folders[step.model_name])
            for step in config.ensemble_scheduling.step
        }
        for problems in (_flow(config), _versions(config, parsed, folders), _tensors(name, config, complete)):
            if sentence := next(problems, ""):
                return f"{FILE} of the ensemble {name}{sentence}"
    return ""


def _parsed(content: bytes | None) -> ModelConfig | None:
    """Return a parsed configuration; None if it is invalid or has a field of a later Triton, whose rules may differ."""
    try:
        return config_pbtxt.parse(content or b"")
    except ModelError:
        return None


def _if_complete(config: ModelConfig | None, content: bytes | None, folder: ModelFolder) -> ModelConfig | None:
    """Return a model's configuration; None if Triton may complete it."""
    if config is None or content is None:
        return None
    return config if ensemble.is_ensemble(config) or auto_complete.is_complete(content, folder) else None


def _flow(config: ModelConfig) -> Iterator[str]:
    """Yield problems of ensemble tensors: without a source, without a use, or written by several steps."""
    steps = config.ensemble_scheduling.step
    for number, step in enumerate(steps, 1):
        for side, mapped in (("input", step.input_map), ("output", step.output_map)):
            if not mapped:
                good = f'{side}_map {{ key: "{side[0].upper()}" value: "image" }}'
                yield f"{_at(number, step)}: no {side}_map, which Triton requires; for example {good}"
    yield from _without_source(config, steps)
    yield from _without_use(config, steps)
    written: set[str] = set()
    for number, step in enumerate(steps, 1):
        for name, tensor in sorted(step.output_map.items()):
            if tensor in written:
                yield (
                    f"{_at(number, step)}: the ensemble tensor {tensor!r} is in more than one output_map; name each "
                    f'tensor once, for example output_map {{ key: "{name}" value: "{tensor}_{number}" }}'
                )
            written.add(tensor)


def _without_source(config: ModelConfig, steps: Collection[_Step]) -> Iterator[str]:
    written = [tensor for step in steps for _, tensor in sorted(step.output_map.items())]
    sources = list(dict.fromkeys([*(tensor.name for tensor in config.input), *written]))
    for number, step in enumerate(steps, 1):
        for name, tensor in sorted(step.input_map.items()):
            if tensor not in sources:
                yield (
                    f"{_at(number, step)}: input_map gives the input {name!r} the ensemble tensor {tensor!r}, which is neither "
                    f"an input of the ensemble nor in the output_map of a step; there are {_list(sources)}. For "
                    f'example input_map {{ key: "{name}" value: "{_nearest(tensor, sources, "image")}" }}'
                )
    keys = [key for step in steps for key in step.output_map]
    for output in config.output:
        if output.name not in sources:
            yield (
                f": no step writes the output {output.name!r}; the steps write {_list(written)}. For example "
                f'output_map {{ key: "{_nearest("", keys[::-1], "Y")}" value: "{output.name}" }} in the last step'
            )


def _without_use(config: ModelConfig, steps: Collection[_Step]) -> Iterator[str]:
    used = list(dict.fromkeys(tensor for step in steps for _, tensor in sorted(step.input_map.items())))
    outputs = {output.name for output in config.output}
    written = {tensor for step in steps for tensor in step.output_map.values()}
    for source in config.input:
        if source.name not in {*used, *written}:
            yield (
                f": no step uses the input {source.name!r}; the steps use {_list(used)}. Remove the input, or use it, for "
                f'example input_map {{ key: "X" value: "{source.name}" }}'
            )
    for number, step in enumerate(steps, 1):
        for name, tensor in sorted(step.output_map.items()):
            if tensor not in {*used, *outputs}:
                yield (
                    f"{_at(number, step)}: output_map writes the output {name!r} to the ensemble tensor {tensor!r}, which is "
                    "neither an output of the ensemble nor in the input_map of a step. Remove this output_map, or use the "
                    f'tensor, for example output [ {{ name: "{tensor}" ... }} ]'
                )


def _versions(
    config: ModelConfig, parsed: Mapping[str, ModelConfig | None], folders: Mapping[str, ModelFolder]
) -> Iterator[str]:
    """Yield problems of versions that Triton would not load."""
    for number, step in enumerate(config.ensemble_scheduling.step, 1):
        model = parsed[step.model_name]
        if model is None or step.model_version == -1:
            continue
        existing = folders[step.model_name].versions
        loaded = _loaded(model, existing)
        if step.model_version not in loaded:
            absent = ", which is the value without this field" if step.model_version == 0 else ""
            policy = "" if loaded == existing else f", of which its version_policy loads {_list(loaded)}"
            yield (
                f"{_at(number, step)}: model_version is {step.model_version}{absent}; the model {step.model_name} has the "
                f"version folders {_list(existing)}{policy}. For example model_version: -1 for the latest"
            )


def _loaded(config: ModelConfig, existing: tuple[int, ...]) -> tuple[int, ...]:
    """Return the versions that Triton loads. The existing versions are given in ascending order."""
    policy = config.version_policy
    choice = policy.WhichOneof("policy_choice")
    if choice == "specific":
        return tuple(version for version in existing if version in policy.specific.versions)
    if choice == "all":
        return existing
    return existing[-(policy.latest.num_versions or 1) :]


@dataclass(frozen=True)
class _Tensor:
    """Data type and shape of an ensemble tensor, as a model or the ensemble declares it."""

    origin: str
    """Phrase that names the place of the declaration."""
    data_type: int
    dims: tuple[int, ...]
    batches: bool
    """Whether the shape has a batch dimension before `dims`."""

    @property
    def type_name(self) -> str:
        return f"TYPE_{model_config_proto.data_type_name(self.data_type)}"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape with the batch dimension."""
        return (-1, *self.dims) if self.batches else self.dims

    def fits(self, other: _Tensor) -> bool:
        """Return whether Triton accepts both shapes for one tensor. A size of -1 matches every size."""
        return _fit(self.dims, other.dims) or _fit(self.shape, other.shape)


def _fit(dims: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return len(dims) == len(other) and all(a == b or -1 in (a, b) for a, b in zip(dims, other, strict=True))


def _tensors(name: str, config: ModelConfig, complete: Mapping[str, ModelConfig | None]) -> Iterator[str]:
    """Yield problems of the tensors that connect the steps.

    Triton compares each tensor with its first declaration. If Triton may complete the configuration with that
    declaration, its type and shape are unknown (None in `declared`), and the tensor isn't compared.
    """
    declared: dict[str, _Tensor | None] = {}
    for side, tensors in (("input", config.input), ("output", config.output)):
        for entry in tensors:
            dims = tuple(entry.reshape.shape if entry.HasField("reshape") else entry.dims)
            origin = f"in the {side} of {name}"
            declared.setdefault(entry.name, _Tensor(origin, entry.data_type, dims, config.max_batch_size > 0))
    for number, step in enumerate(config.ensemble_scheduling.step, 1):
        model = complete[step.model_name]
        if model is None:
            declared = dict.fromkeys([*step.input_map.values(), *step.output_map.values()]) | declared
            continue
        at = _at(number, step)
        if 0 < model.max_batch_size < config.max_batch_size:
            yield (
                f"{at}: the model {step.model_name} has max_batch_size: {model.max_batch_size}, less than the ensemble's "
                f"{config.max_batch_size}; for example max_batch_size: {model.max_batch_size} in the ensemble"
            )
        for side, mapped, tensors in (
            ("input", step.input_map, model.input),
            ("output", step.output_map, model.output),
        ):
            yield from (at + text for text in _names(side, step, mapped, tensors))
            for entry in tensors:
                if entry.name not in mapped:
                    continue
                origin = f"in the {side} {entry.name!r} of {step.model_name}"
                tensor = _Tensor(origin, entry.data_type, tuple(entry.dims), model.max_batch_size > 0)
                first = declared.setdefault(mapped[entry.name], tensor)
                yield from (at + text for text in _differences(mapped[entry.name], tensor, first))


def _names(side: str, step: _Step, mapped: Mapping[str, str], tensors: Collection[Any]) -> Iterator[str]:
    names = [entry.name for entry in tensors]
    for key, value in sorted(mapped.items()):
        if key not in names:
            yield (
                f": {side}_map has the key {key!r}, and the model {step.model_name} has no {side} of this name; it has "
                f'{_list(names)}. For example {side}_map {{ key: "{_nearest(key, names, key)}" value: "{value}" }}'
            )
    for entry in tensors:
        if side == "input" and entry.name not in mapped and not entry.optional:
            yield (
                f": input_map lacks the input {entry.name!r} of the model {step.model_name}; for example "
                f'input_map {{ key: "{entry.name}" value: "image" }}, or optional: true at the input'
            )


def _differences(name: str, tensor: _Tensor, first: _Tensor | None) -> Iterator[str]:
    if first is None:
        return
    if tensor.data_type != first.data_type:
        yield (
            f": the ensemble tensor {name!r} has the data type {tensor.type_name} {tensor.origin}, and {first.type_name} "
            f"{first.origin}; both must be equal, for example data_type: {first.type_name}"
        )
    if not tensor.fits(first):
        yield (
            f": the ensemble tensor {name!r} has the shape {_shape(tensor.shape)} {tensor.origin}, and "
            f"{_shape(first.shape)} {first.origin}, batch dimensions included; sizes must be equal or -1, for example "
            f"dims: {_shape(first.dims)}"
        )


def _shape(dims: tuple[int, ...]) -> str:
    return f"[ {', '.join(map(str, dims))} ]"


def _at(number: int, step: _Step) -> str:
    return f", step {number} ({step.model_name})"


def _nearest(name: str, names: Sequence[str], default: str) -> str:
    """Return the most similar name, for use as an example; the first name if none is similar."""
    return next(iter([*difflib.get_close_matches(name, names, n=1), *names]), default)


def _list(values: Collection[object]) -> str:
    shown = [str(value) for value in list(values)[:_MAX_SHOWN]]
    return ", ".join(shown) + (f" and {len(values) - _MAX_SHOWN} more" if len(values) > _MAX_SHOWN else "") or "none"
