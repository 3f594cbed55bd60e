"""Builder of the overlay: the settings that a ModelDeployment adds to the model's own config.pbtxt."""

from __future__ import annotations

from halcyon.api.documents import model_overlay
from halcyon.api.spec import Spec
from halcyon.api.spec.batching import QueuePolicy
from halcyon.api.types import duration_us, quantity


def model_name(name: str, spec: Spec) -> str:
    """Return the model's name in requests and in Triton.

    It is the name in the spec, or else the name of the ModelDeployment.
    """
    return spec.model.name or name


def build(name: str, spec: Spec) -> model_overlay.Overlay:
    """Build the overlay of the ModelDeployment with this name and spec."""
    return model_overlay.Overlay(
        model_name=model_name(name, spec),
        max_batch_size=spec.batching.max_batch_size if spec.batching else None,
        dynamic_batching=_dynamic_batching(spec),
        instances=spec.runtime.instances_per_gpu,
        version_policy=_version_policy(spec),
        backend=spec.model.backend,
        parameters=dict(spec.model.parameters or {}),
        warmup=_warmup(spec),
        response_cache=True if spec.runtime.server and spec.runtime.server.response_cache else None,
        millicores=_millicores(spec),
    )


def _millicores(spec: Spec) -> int | None:
    limits = spec.runtime.resources.limits
    return None if spec.runtime.gpus or limits is None or limits.cpu is None else int(1000 * quantity(limits.cpu))


def _dynamic_batching(spec: Spec) -> model_overlay.DynamicBatching | None:
    batching = spec.batching
    if batching is None:
        return None
    return model_overlay.DynamicBatching(
        max_queue_delay_us=None if batching.max_queue_delay is None else duration_us(batching.max_queue_delay),
        preferred_batch_sizes=tuple(sorted(batching.preferred_batch_sizes or ())),
        preserve_ordering=batching.preserve_ordering,
        priority_levels=batching.priority_levels,
        default_priority_level=batching.default_priority_level or batching.priority_levels,
        queue_policy=_queue_policy(batching.queue_policy),
    )


def _queue_policy(policy: QueuePolicy | None) -> model_overlay.OverlayQueuePolicy | None:
    if policy is None:
        return None
    return model_overlay.OverlayQueuePolicy(
        delay=None if policy.timeout_action is None else policy.timeout_action == "Delay",
        timeout_us=None if policy.default_timeout is None else duration_us(policy.default_timeout),
        allow_timeout_override=policy.allow_timeout_override,
        max_queue_size=policy.max_queue_size,
    )


def _version_policy(spec: Spec) -> model_overlay.VersionPolicy | None:
    versions = spec.model.versions
    if versions is None:
        return None
    return model_overlay.VersionPolicy(
        latest=versions.latest, specific=tuple(versions.specific or ()), all=bool(versions.all)
    )


def _warmup(spec: Spec) -> model_overlay.OverlayWarmup | None:
    warmup = spec.model.warmup
    if warmup is None:
        return None
    return model_overlay.OverlayWarmup(
        batch_sizes=tuple(sorted(warmup.batch_sizes or ())),
        iterations=warmup.iterations,
        data="random" if warmup.data == "Random" else "zero",
        inputs=tuple(model_overlay.OverlayInput(i.name, i.data_type, tuple(i.dims)) for i in warmup.inputs or ()),
    )
