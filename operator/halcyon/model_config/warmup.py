"""Warm-up requests in a model's configuration, created from the overlay.

Rules of Triton, determined with version 2.51:
- A variable dimension must have a length.
- A batch size above max_batch_size makes loading fail. A model without batching has batch size 1.
- A request must have all inputs of the model except optional ones. It must also have those that the sequence batcher
  adds to a client's request: its controls, such as the start of a sequence, and its states.
- Dimensions do not include the batch dimension, as in config.pbtxt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from halcyon.api.documents.model_overlay import OverlayWarmup
from halcyon.model_config import model_config_proto
from halcyon.model_config.errors import ConflictError
from halcyon.model_config.model_config_proto import ModelConfig

_GOOD_LENGTH = 128
"""Length of variable dimensions in the examples in error messages."""


def replace(config: ModelConfig, warmup: OverlayWarmup) -> None:
    """Replace the warm-up requests in the configuration with those of `warmup`.

    Raises:
        ConflictError: a batch size is above the maximum, or the inputs or their lengths are not known.
    """
    limit = config.max_batch_size
    most = max(1, limit)
    sizes = warmup.batch_sizes or tuple(sorted({1, most}))
    for size in sizes:
        if size > most:
            raise ConflictError(
                f"spec.model.warmup.batchSizes has {size}, above max_batch_size {limit}. Leave it out (1 and the maximum "
                f"are warmed up), or give sizes up to {most}"
            )
    added = dict(_added_by_sequence_batcher(config))
    inputs = _inputs(config, warmup, added)
    del config.model_warmup[:]
    for size in sizes:
        request = config.model_warmup.add(name=f"halcyon-batch-{size}", batch_size=size, count=warmup.iterations)
        for name, (data_type, dims) in inputs.items():
            tensor = request.inputs[name]
            tensor.data_type = data_type
            tensor.dims[:] = [1 if length == -1 else length for length in dims]
            if warmup.data == "random" and name not in added:
                tensor.random_data = True
            else:
                tensor.zero_data = True


_Shape: TypeAlias = tuple[int, tuple[int, ...]]
"""Data type and dimensions of an input."""
_FLAGS = {"fp32_false_true": "FP32", "int32_false_true": "INT32", "bool_false_true": "BOOL"}
"""Data type of a sequence control, by the name of the field with its values. A control without such a field has a field
`data_type`."""


def _added_by_sequence_batcher(config: ModelConfig) -> Iterator[tuple[str, _Shape]]:
    for tensor in config.sequence_batching.control_input:
        for control in tensor.control:
            flags = (model_config_proto.data_type(kind) for field, kind in _FLAGS.items() if getattr(control, field))
            yield tensor.name, (next(flags, control.data_type), (1,))
    for state in config.sequence_batching.state:
        yield state.input_name, (state.data_type, tuple(state.dims))


def _inputs(config: ModelConfig, warmup: OverlayWarmup, added: Mapping[str, _Shape]) -> dict[str, _Shape]:
    inputs = {tensor.name: (tensor.data_type, tuple(tensor.dims)) for tensor in config.input}
    if not warmup.inputs:
        if not inputs:
            raise ConflictError(
                "spec.model.warmup has no inputs, and neither has config.pbtxt (Triton completes it only when the model "
                "is loaded). Add them, for example inputs: [{name: X, dataType: FP32, dims: [4]}]"
            )
        return {**inputs, **added}
    requested = {tensor.name: (model_config_proto.data_type(tensor.data_type), tensor.dims) for tensor in warmup.inputs}
    for name in requested:
        if inputs and name not in inputs and name not in added:
            raise ConflictError(
                f"spec.model.warmup.inputs has {name}, which is not an input of the model; config.pbtxt has {', '.join(inputs)}"
            )
    # Omit an optional input that is not named, because requests without it are valid.
    missing = [tensor for tensor in config.input if tensor.name not in requested and not tensor.optional]
    for tensor in missing:
        _check_determined(config, tensor, next(iter(requested)))
    return {**added, **requested, **{tensor.name: inputs[tensor.name] for tensor in missing}}


def _check_determined(config: ModelConfig, tensor: Any, named: str) -> None:
    """Raise an error if config.pbtxt does not determine the shape of an input that `warmup` does not name.

    A user names an input if the length 1 is too short for its variable dimension. The lengths of other inputs usually
    depend on the same value, so 1 would be a guess for them, too.
    """
    if tensor.data_type and tensor.dims and -1 not in tensor.dims:
        return
    data_type = model_config_proto.data_type_name(tensor.data_type) if tensor.data_type else "FP32"
    dims = [_GOOD_LENGTH if length == -1 else length for length in tensor.dims] or [_GOOD_LENGTH]
    raise ConflictError(
        f"spec.model.warmup.inputs names {named} and leaves out {tensor.name}, whose length can't be known: config.pbtxt of model {config.name} "
        f"has data_type {data_type if tensor.data_type else 'not set'} and dims {list(tensor.dims)} for it. Add it, for example "
        f"{{name: {tensor.name}, dataType: {data_type}, dims: {dims}}}"
    )
