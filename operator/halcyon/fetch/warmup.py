"""Warm-up requests of a configuration, as the overlay requests them.

Triton's rules, found on 2.51: a variable dimension must be given a length; a batch above max_batch_size fails the load;
a model without batching takes batch size 1; the inputs of a request must be those of the model, except optional ones. Dimensions are
given without the batch's, as in config.pbtxt.
"""

from __future__ import annotations

from typing import Any

from halcyon.api.documents.model_overlay import OverlayInput, OverlayWarmup
from halcyon.fetch import model_config_proto
from halcyon.fetch.errors import ConflictError
from halcyon.fetch.model_config_proto import ModelConfig

_GOOD_LENGTH = 128
"""Length of a variable dimension in examples."""


def replace(config: ModelConfig, warmup: OverlayWarmup) -> None:
    """Replace the configuration's own warm-up requests by those of `warmup`.

    Raises:
        ConflictError: a batch size is above the maximum, or inputs are unknown, not the model's, or left out though their length isn't
            known.
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
    inputs = _inputs(config, warmup)
    del config.model_warmup[:]
    for size in sizes:
        request = config.model_warmup.add(name=f"halcyon-batch-{size}", batch_size=size, count=warmup.iterations)
        for name, (data_type, dims) in inputs.items():
            tensor = request.inputs[name]
            tensor.data_type = data_type
            tensor.dims[:] = [1 if length == -1 else length for length in dims]
            if warmup.data == "random":
                tensor.random_data = True
            else:
                tensor.zero_data = True


def _inputs(config: ModelConfig, warmup: OverlayWarmup) -> dict[str, tuple[int, tuple[int, ...]]]:
    own = {tensor.name: (tensor.data_type, tuple(tensor.dims)) for tensor in config.input}
    if not warmup.inputs:
        if not own:
            raise ConflictError(
                "spec.model.warmup has no inputs, and neither has config.pbtxt (Triton completes it only when the model "
                "is loaded). Add them, for example inputs: [{name: X, dataType: FP32, dims: [4]}]"
            )
        return own
    requested = {tensor.name: _shape(tensor) for tensor in warmup.inputs}
    for name in requested:
        if own and name not in own:
            raise ConflictError(
                f"spec.model.warmup.inputs has {name}, which is not an input of the model; config.pbtxt has {', '.join(own)}"
            )
    # An optional input that isn't named stays out: requests without it are valid, too.
    missing = [tensor for tensor in config.input if tensor.name not in requested and not tensor.optional]
    for tensor in missing:
        _check_determined(config, tensor, next(iter(requested)))
    return requested | {tensor.name: own[tensor.name] for tensor in missing}


def _check_determined(config: ModelConfig, tensor: Any, named: str) -> None:
    """Check that config.pbtxt alone determines the warm-up of this input.

    A warm-up names an input because 1 is too short for its variable dimension. The lengths of the other inputs usually go with it, so 1
    would be a guess.
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


def _shape(tensor: OverlayInput) -> tuple[int, tuple[int, ...]]:
    return model_config_proto.data_type(tensor.data_type), tensor.dims
