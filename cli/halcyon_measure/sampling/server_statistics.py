"""Statistics and configuration of a model, read with the protocol of the run. The parsers are pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

from halcyon_measure.errors import TargetError
from halcyon_measure.protocols import connect
from halcyon_measure.protocols.target import Target
from halcyon_measure.results.observations import Counters, ServerConfig, SizeCounters, Statistics

_NS = 1e9


def parse(document: Any) -> Statistics:
    """Parse the response of Triton's statistics extension in JSON form. The values of all versions are summed.

    Raises:
        TargetError: the document isn't a response of the statistics extension.
    """
    try:
        total, sizes = Counters(0, 0, 0, 0, 0, 0, 0), dict[int, SizeCounters]()
        for entry in document["model_stats"]:
            stats = entry["inference_stats"]
            total = total.plus(
                Counters(
                    requests=float(stats["success"].get("count", 0)),
                    rows=float(entry.get("inference_count", 0)),
                    executions=float(entry.get("execution_count", 0)),
                    queue_s=_seconds(stats["queue"]),
                    input_s=_seconds(stats["compute_input"]),
                    model_s=_seconds(stats["compute_infer"]),
                    output_s=_seconds(stats["compute_output"]),
                )
            )
            for size in entry.get("batch_stats", ()):
                rows = int(size["batch_size"])
                previous = sizes.get(rows, SizeCounters(0, 0, 0, 0))
                sizes[rows] = SizeCounters(
                    previous.executions + float(size["compute_infer"].get("count", 0)),
                    previous.input_s + _seconds(size["compute_input"]),
                    previous.model_s + _seconds(size["compute_infer"]),
                    previous.output_s + _seconds(size["compute_output"]),
                )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise TargetError(f"the server's statistics aren't those of Triton: {str(document)[:120]}") from None
    return Statistics(total, sizes)


def parse_config(document: Any) -> ServerConfig:
    """Parse a model's configuration in JSON form."""
    if not isinstance(document, Mapping):
        return ServerConfig()
    groups: Any = document.get("instance_group")
    batching: Any = document.get("dynamic_batching")
    policy: Any = document.get("model_transaction_policy")
    delay: Any = batching.get("max_queue_delay_microseconds", 0) if isinstance(batching, Mapping) else 0
    return ServerConfig(
        largest_batch=max(int(document.get("max_batch_size", 0)), 1),
        instances=_instances(groups if isinstance(groups, Sequence) else ()),
        max_queue_delay_s=int(delay) / 1e6,
        steps=_steps(document.get("ensemble_scheduling")),
        keeps_state="sequence_batching" in document,
        is_decoupled=bool(policy.get("decoupled")) if isinstance(policy, Mapping) else False,
        optional=_optional(document.get("input")),
        most_rows=int(document.get("max_batch_size", 0)) or None,
    )


def read(target: Target) -> Statistics:
    """Read the server's statistics for the target's model.

    Raises:
        TargetError: the server doesn't respond, or has no statistics.
    """
    if target.api != "kserve":
        raise TargetError(f"api {target.api} has no statistics; Triton's KServe v2 has")
    if target.transport == "http":
        return parse(connect.fetch(target, f"{_path(target)}/stats"))
    return parse(_by_grpc(target, "ModelStatistics"))


def read_config(target: Target) -> ServerConfig:
    """Read the configuration of the target's model.

    If the server doesn't publish it, all values in the result are unknown.
    """
    if target.api != "kserve":
        return ServerConfig()
    try:
        if target.transport == "http":
            return parse_config(connect.fetch(target, f"{_path(target)}/config"))
        return parse_config(_by_grpc(target, "ModelConfig").get("config"))
    except (TargetError, ValueError, TypeError):
        return ServerConfig()


def _path(target: Target) -> str:
    version = f"/versions/{quote(target.version)}" if target.version else ""
    return f"/v2/models/{quote(target.model, safe='')}{version}"


def _by_grpc(target: Target, method: Literal["ModelStatistics", "ModelConfig"]) -> dict[str, Any]:
    from halcyon_measure.protocols import grpc_client  # noqa: PLC0415  # grpcio takes half a second

    return grpc_client.described(target, method)


def _seconds(duration: Mapping[str, Any]) -> float:
    return float(duration.get("ns", 0)) / _NS


def _steps(scheduling: Any) -> tuple[str, ...]:
    """Return the models in the steps of an ensemble, without duplicates."""
    steps: Any = scheduling.get("step", ()) if isinstance(scheduling, Mapping) else ()
    models = (str(step.get("model_name")) for step in steps if isinstance(step, Mapping))
    return tuple(dict.fromkeys(models))


def _optional(inputs: Any) -> frozenset[str]:
    entries: Any = inputs if isinstance(inputs, Sequence) else ()
    return frozenset(
        str(entry.get("name")) for entry in entries if isinstance(entry, Mapping) and entry.get("optional")
    )


def _instances(groups: Sequence[Any]) -> int | None:
    """Return the number of instances per server; None if it is unknown. A group on GPUs has its count on each GPU."""
    total = 0
    for group in groups:
        if not isinstance(group, Mapping):
            return None
        gpus: Any = group.get("gpus") or ()
        total += int(group.get("count", 1)) * max(len(gpus), 1)
    return total or None
