"""Merging of the overlay into the model's own configuration. Pure.

A field that the overlay sets replaces the model's value; all other fields stay unchanged. An overlay that would change
the model's backend or scheduler is rejected. This module also detects errors for which Triton would report no reason:
if Triton rejects a configuration while it scans the repository, only its log shows why.
"""

from __future__ import annotations

from typing import Any

from halcyon.api.documents.model_overlay import DynamicBatching, Overlay, OverlayQueuePolicy, VersionPolicy
from halcyon.model_config import ensemble, model_config_proto, threads, warmup
from halcyon.model_config.errors import ConflictError
from halcyon.model_config.model_config_proto import ModelConfig

PLATFORMS = {
    "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
    "tensorflow_graphdef": "tensorflow",
    "tensorflow_savedmodel": "tensorflow",
    "tensorrt_plan": "tensorrt",
}
"""Names of backends, by the value of `platform`, an older field of config.pbtxt with the same purpose as `backend`."""


def merge(own: ModelConfig, overlay: Overlay, *, backend_of_file: str = "") -> ModelConfig:
    """Return a new configuration: `own` with the overlay applied. `own` is empty if the model has no config.pbtxt.

    Merging the same overlay again changes nothing. `backend_of_file` is the backend that Triton derives from the
    model's files if the configuration names none; empty if unknown.

    Raises:
        ConflictError: configuration and overlay contradict each other, or the result would not work.
    """
    config = model_config_proto.empty()
    config.CopyFrom(own)
    config.name = overlay.model_name
    _set(config, max_batch_size=overlay.max_batch_size)
    _backend(config, overlay.backend)
    _dynamic_batching(config, overlay.dynamic_batching)
    _instances(config, overlay.instances)
    _version_policy(config, overlay.version_policy)
    for key, value in overlay.parameters.items():
        config.parameters[key].string_value = value
    if overlay.millicores is not None:
        threads.share(config, backend_of(config) or backend_of_file, overlay.millicores / 1000)
    _batching_fits(config)
    if overlay.response_cache:
        config.response_cache.enable = True
    if config.response_cache.enable:
        _is_cacheable(config)
    if overlay.warmup is not None:
        _not_for_ensembles(config, "spec.model.warmup")
        warmup.replace(config, overlay.warmup)
    return config


def backend_of(config: ModelConfig) -> str:
    """Return the backend in a configuration's field `backend` or `platform`; empty if neither is set."""
    return str(config.backend or PLATFORMS.get(config.platform, config.platform))


def changes(before: ModelConfig, after: ModelConfig) -> list[str]:
    """Return the names of the top-level fields in which two configurations differ, in the order of the message type."""
    old, new = ({field.name: value for field, value in config.ListFields()} for config in (before, after))
    return [field.name for field in before.DESCRIPTOR.fields if old.get(field.name) != new.get(field.name)]


def _not_for_ensembles(config: ModelConfig, field: str) -> None:
    if ensemble.is_ensemble(config):
        raise ConflictError(
            f"{field} can't apply: config.pbtxt describes an ensemble, which only passes requests on to its steps. "
            f"Leave {field} out and configure the steps"
        )


def _backend(config: ModelConfig, backend: str | None) -> None:
    if backend is None:
        return
    _not_for_ensembles(config, "spec.model.backend")
    configured = backend_of(config)
    if configured and configured != backend:
        field = f'backend: "{config.backend}"' if config.backend else f'platform: "{config.platform}"'
        raise ConflictError(
            f"spec.model.backend is {backend}, but config.pbtxt sets {field}. Leave spec.model.backend out, or remove "
            "the line from config.pbtxt"
        )
    if not configured:
        config.backend = backend


def _dynamic_batching(config: ModelConfig, batching: DynamicBatching | None) -> None:
    if batching is None:
        return
    _not_for_ensembles(config, "spec.batching")
    if config.HasField("sequence_batching"):
        raise ConflictError(
            "spec.batching can't apply: config.pbtxt has sequence_batching, and a model has one scheduler. Leave "
            "spec.batching out, or remove sequence_batching from config.pbtxt"
        )
    if config.max_batch_size < 1:
        # Triton would accept this configuration, but never form a batch.
        raise ConflictError(
            f"spec.batching needs a maximum batch size: max_batch_size is {config.max_batch_size} in config.pbtxt (or "
            "absent), so the model takes one request at a time. Set spec.batching.maxBatchSize, for example 16, if the "
            "first dimension of the model's tensors is the batch; else leave spec.batching out"
        )
    target = config.dynamic_batching
    target.SetInParent()
    if batching.preferred_batch_sizes:
        target.preferred_batch_size[:] = batching.preferred_batch_sizes
    _set(
        target,
        max_queue_delay_microseconds=batching.max_queue_delay_us,
        preserve_ordering=batching.preserve_ordering,
        priority_levels=batching.priority_levels,
        default_priority_level=batching.default_priority_level,
    )
    policy = batching.queue_policy or OverlayQueuePolicy()
    _set(
        target.default_queue_policy,
        timeout_action=None if policy.delay is None else int(policy.delay),  # REJECT is 0, DELAY is 1
        default_timeout_microseconds=policy.timeout_us,
        allow_timeout_override=policy.allow_timeout_override,
        max_queue_size=policy.max_queue_size,
    )


def _set(message: Any, **values: int | None) -> None:  # any protobuf message
    """Set fields of a message. Values of None are skipped."""
    for name, value in values.items():
        if value is not None:
            setattr(message, name, value)


def _is_cacheable(config: ModelConfig) -> None:
    feature = "sequence_batching" if config.HasField("sequence_batching") else ""
    if config.model_transaction_policy.decoupled:
        feature = "model_transaction_policy { decoupled: true }"
    if feature:
        raise ConflictError(
            f"spec.runtime.server.responseCache can't apply: config.pbtxt has {feature}, and Triton caches no responses of "
            "such models. Leave spec.runtime.server.responseCache out, and response_cache out of config.pbtxt"
        )


def _instances(config: ModelConfig, count: int | None) -> None:
    if count is None:
        return
    _not_for_ensembles(config, "spec.runtime.instancesPerGPU")
    groups = config.instance_group
    if not groups:
        groups.add(count=count)
        return
    ruled_by_model = model_config_proto.module().ModelInstanceGroup.KIND_MODEL
    counted = [group for group in groups if group.kind != ruled_by_model]
    if not counted:
        raise ConflictError(
            f"spec.runtime.instancesPerGPU is {count}, but every instance_group in config.pbtxt is of KIND_MODEL, where "
            "the model itself places its instances. Leave spec.runtime.instancesPerGPU out"
        )
    for group in counted:
        group.count = count


def _version_policy(config: ModelConfig, policy: VersionPolicy | None) -> None:
    if policy is None:
        return
    target = config.version_policy
    target.Clear()
    if policy.latest is not None:
        target.latest.num_versions = policy.latest
    elif policy.specific:
        target.specific.versions[:] = policy.specific
    else:
        target.all.SetInParent()


def _batching_fits(config: ModelConfig) -> None:
    """Raise an error if batch sizes and priorities, from the overlay or from config.pbtxt, contradict each other."""
    batching, limit, note = config.dynamic_batching, config.max_batch_size, "(spec.batching and config.pbtxt together)"
    if limit < 0:
        raise ConflictError(
            f"max_batch_size is {limit} in config.pbtxt; it must be 0 (no batching) or more, for example 8"
        )
    if preferred := [size for size in batching.preferred_batch_size if size > limit]:
        raise ConflictError(
            f"preferred_batch_size {preferred[0]} is above max_batch_size {limit} {note}. Raise spec.batching.maxBatchSize "
            f"to {preferred[0]}, or set spec.batching.preferredBatchSizes to sizes up to {limit}"
        )
    levels, policies = batching.priority_levels, batching.priority_queue_policy
    if levels and not 1 <= batching.default_priority_level <= levels:
        raise ConflictError(
            f"default_priority_level is {batching.default_priority_level}, and must be from 1 to priority_levels, which is "
            f"{levels} {note}. Set spec.batching.defaultPriorityLevel, for example {levels}"
        )
    if levels and max(policies, default=0) > levels:
        raise ConflictError(
            f"priority_queue_policy of config.pbtxt has the level {max(policies)}, and priority_levels is {levels} {note}. "
            f"Set spec.batching.priorityLevels to {max(policies)}, or remove the level from config.pbtxt"
        )
    delays = any(policy.timeout_action == 1 for policy in (batching.default_queue_policy, *policies.values()))
    if batching.preserve_ordering and (levels > 1 or delays):
        other = f"priority_levels is {levels}" if levels > 1 else "the timeout_action of a queue policy is DELAY"
        raise ConflictError(
            f"preserve_ordering is true and {other} {note}, which Triton rejects. Set spec.batching.preserveOrdering: "
            "false, or use no priorities and no timeoutAction: Delay"
        )
