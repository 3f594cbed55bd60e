"""Arguments of tritonserver from `spec.runtime.server`."""

from __future__ import annotations

from halcyon.api.spec.runtime import Runtime
from halcyon.api.types import quantity

_LOG = {
    "Error": ("--log-warning=false", "--log-info=false"),
    "Warning": ("--log-info=false",),
    "Info": (),
    "Verbose": ("--log-verbose=1",),
}


def triton_args(runtime: Runtime) -> list[str]:
    """Return the arguments of tritonserver for the options that the spec sets. The list is empty if it sets none."""
    settings = runtime.server
    if settings is None:
        return []
    args = list(_LOG[settings.log_level])
    if settings.response_cache is not None:
        args.append(f"--cache-config=local,size={int(quantity(settings.response_cache.size))}")
    if settings.pinned_memory_pool is not None:
        args.append(f"--pinned-memory-pool-byte-size={int(quantity(settings.pinned_memory_pool))}")
    if settings.cuda_memory_pool is not None:
        pool = int(quantity(settings.cuda_memory_pool))
        args += [f"--cuda-memory-pool-byte-size={device}:{pool}" for device in range(runtime.gpus)]
    if settings.forwarded_headers is not None:
        # Triton matches a pattern anywhere in a name; anchors exclude x-user-id if only x-user is named.
        pattern = f"(?i)^({'|'.join(settings.forwarded_headers)})$"
        args += [f"--{protocol}-header-forward-pattern={pattern}" for protocol in ("http", "grpc")]
    return args
