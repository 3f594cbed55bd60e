"""Triton's configuration of the model with changed settings of batches, instances and threads. Pure.

A setting has the same effect as the field of a ModelDeployment in the fetcher (`halcyon.model_config.merge`). A
configuration that a tuning run finds therefore performs the same when it is set in the spec. Other parts of the model's
own configuration stay unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from halcyon_tune.points import Configuration

_OWN_PLACEMENT = "KIND_MODEL"
"""Kind of an instance group whose placement the model itself determines."""
_MEMORY = re.compile(
    r"out ?of ?memory|bad_alloc|memoryerror|cannot allocate memory|failed to allocate|shared memory pool size|\boom\b", re.IGNORECASE
)  # fmt: skip
"""Pattern of messages about insufficient memory, from Triton, its backends and CUDA."""


def changed(config: Mapping[str, Any], configuration: Configuration, *, threads_parameter: str) -> dict[str, Any]:
    """Return the configuration of a model with the settings of `configuration`.

    `threads_parameter` is the key in `model.parameters` for the number of threads of an instance; empty if that number
    stays unchanged.
    """
    document: dict[str, Any] = json.loads(json.dumps(config))
    batches = configuration.max_batch > 1 or int(document.get("max_batch_size", 0)) > 0
    if batches:
        document["max_batch_size"] = configuration.max_batch
    if configuration.max_batch > 1:
        batching = document.setdefault("dynamic_batching", {})
        batching["max_queue_delay_microseconds"] = round(1e6 * configuration.delay_s)
        batching["preferred_batch_size"] = list(configuration.preferred)
    elif "dynamic_batching" in document:
        # The model's own preferred sizes could exceed the largest batch, which Triton rejects.
        document["dynamic_batching"] |= {"max_queue_delay_microseconds": 0, "preferred_batch_size": []}
    groups = document.setdefault("instance_group", [])
    if not groups:
        groups.append({})
    for group in groups:
        if group.get("kind") != _OWN_PLACEMENT:
            group["count"] = configuration.instances
    if configuration.threads is not None and threads_parameter:
        document.setdefault("parameters", {})[threads_parameter] = {"string_value": str(configuration.threads)}
    return document


def is_about_memory(message: str) -> bool:
    """Return whether a message of Triton or of a backend is about insufficient memory."""
    return _MEMORY.search(message) is not None
