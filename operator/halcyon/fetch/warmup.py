"""Warm-up requests of a configuration, from what the overlay asks.

Triton's rules, found on 2.51: a variable dimension must be given a length; a batch above max_batch_size fails the load;
a model without batching takes batch size 1; the inputs of a request must be those of the model.
"""

from __future__ import annotations

from halcyon.api.overlay import Warmup, WarmupInput
from halcyon.fetch import schema
from halcyon.fetch.errors import ConflictError
from halcyon.fetch.schema import ModelConfig


def replace(config: ModelConfig, warmup: Warmup) -> None:
    """Put the requests of `warmup` in the place of the configuration's own.

    Raises:
        ConflictError: where a batch size is above the maximum, or inputs are unknown or not the model's.
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


def _inputs(config: ModelConfig, warmup: Warmup) -> dict[str, tuple[int, tuple[int, ...]]]:
    own = {tensor.name: (tensor.data_type, tuple(tensor.dims)) for tensor in config.input}
    if not warmup.inputs:
        if not own:
            raise ConflictError(
                "spec.model.warmup has no inputs, and neither has config.pbtxt (Triton completes it only when the model "
                "is loaded). Add them, for example inputs: [{name: X, dataType: FP32, dims: [4]}]"
            )
        return own
    asked = {tensor.name: _of(tensor) for tensor in warmup.inputs}
    for name in asked:
        if own and name not in own:
            raise ConflictError(
                f"spec.model.warmup.inputs has {name}, which is no input of the model; config.pbtxt has {', '.join(own)}"
            )
    return asked


def _of(tensor: WarmupInput) -> tuple[int, tuple[int, ...]]:
    return schema.data_type(tensor.data_type), tensor.dims
