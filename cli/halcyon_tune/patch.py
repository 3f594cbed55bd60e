"""Merge patch that changes a ModelDeployment to a configuration. Pure.

The patch contains only the fields in which the new configuration differs from the current one. It can be applied with
`kubectl patch --type merge`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from halcyon.api.spec.parse import SpecError, parse
from halcyon_tune.errors import TuneError
from halcyon_tune.points import Configuration
from halcyon_tune.space import Space


def patch(space: Space, configuration: Configuration) -> dict[str, Any]:
    """Return the merge patch for a configuration; empty if it is the current configuration."""
    today, spec = space.today, dict[str, Any]()
    batching: dict[str, Any] = {}
    if configuration.max_batch != today.max_batch:
        batching["maxBatchSize"] = configuration.max_batch
    if configuration.delay_s != today.delay_s:
        batching["maxQueueDelay"] = duration(configuration.delay_s)
    if configuration.preferred != today.preferred:
        # Without the field, the sizes in config.pbtxt would stay. A list of the largest batch alone acts as none.
        batching["preferredBatchSizes"] = list(configuration.preferred) or [configuration.max_batch]
    elif "maxBatchSize" in batching and today.preferred and max(today.preferred) > configuration.max_batch:
        batching["preferredBatchSizes"] = [configuration.max_batch]
    if batching:
        spec["batching"] = batching
    if configuration.instances != today.instances:
        spec["runtime"] = {"instancesPerGPU": configuration.instances}
    if configuration.threads != today.threads and configuration.threads is not None and space.thread_parameter:
        spec["model"] = {"parameters": {space.thread_parameter: str(configuration.threads)}}
    return {"spec": spec} if spec else {}


def checked(name: str, spec: Mapping[str, Any], change: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a merge patch, after checking that the API server would accept the patched spec.

    Raises:
        TuneError: the API server would reject the patched spec.
    """
    try:
        parse(name, merged(spec, change.get("spec", {})))
    except SpecError as error:
        text = json.dumps(change)
        raise TuneError(
            f"{name}: the spec with the patch {text} would be rejected: {'; '.join(error.sentences)}"
        ) from None
    return change


def merged(value: Any, change: Any) -> Any:  # JSON values
    """Return the result of applying a merge patch to a JSON document."""
    if not isinstance(change, Mapping):
        return change
    result = dict(value) if isinstance(value, Mapping) else {}
    for key, new in change.items():
        if new is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), new)
    return result


def duration(seconds: float) -> str:
    """Format a duration as in the API, for example `2ms` or `750us`."""
    microseconds = round(seconds * 1e6)
    milliseconds, remainder = divmod(microseconds, 1000)
    return f"{milliseconds}ms" if microseconds and not remainder else f"{microseconds}us"


def command(name: str, namespace: str, change: Mapping[str, Any]) -> str:
    """Return the kubectl command that applies a merge patch to a ModelDeployment."""
    text = json.dumps(change, separators=(",", ":"))
    return f"kubectl patch modeldeployment {name} -n {namespace} --type merge -p '{text}'"
