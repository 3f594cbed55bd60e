"""Check whether two results are comparable: same load, inputs, objective and GPU."""

from __future__ import annotations

from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.number_text import count_text


def unlike(first: BenchDocument, second: BenchDocument) -> tuple[str, ...]:
    """Return phrases about the differences between two results, other than the server and the model."""
    differences = []
    in_steps = first.is_limited_by_clients and second.is_limited_by_clients
    for name, first_value, second_value in (
        ("objective", objective(first), objective(second)),
        ("percentile", _percentile(first), _percentile(second)),
        ("inputs", _inputs(first), _inputs(second)),
        ("rows", first.target.rows, second.target.rows),
        ("API", first.target.api, second.target.api),
        ("encoding", first.target.encoding, second.target.encoding),
        ("shared memory", first.target.shared_memory, second.target.shared_memory),
        *([] if in_steps else [("load", _load(first), _load(second))]),
        ("GPU", _gpu(first), _gpu(second)),
        ("replicas", _replicas(first), _replicas(second)),
    ):
        if first_value != second_value:
            differences.append(f"{name}: {first_value} and {second_value}")
    return tuple(differences)


def objective(document: BenchDocument) -> str:
    """Return the objective as text, from the capacity or else from the goodput; `none` if there is none."""
    if document.capacity is not None:
        limit = document.capacity.objective_ms
        return "none" if limit is None else f"{limit:g} ms"
    goodput = document.goodput
    return "none" if goodput.value is None else goodput.source.removeprefix("answers within ")


def objective_s(document: BenchDocument) -> float | None:
    """Return the objective in seconds; None if there is none."""
    try:
        return float(objective(document).removesuffix(" ms")) / 1000
    except ValueError:  # none, or a text that another program has written
        return None


def _percentile(document: BenchDocument) -> str:
    return "" if document.capacity is None else f"{100 * document.capacity.percentile:g}"


def _inputs(document: BenchDocument) -> str:
    files = ", ".join(str(file.sha256)[:12] for file in document.files)
    shapes = ", ".join(f"{tensor.name} {tensor.datatype} {list(tensor.shape)}" for tensor in document.target.inputs)
    return f"{shapes} from files {files}".strip() if files else shapes or "none"


def _load(document: BenchDocument) -> str:
    if document.capacity is not None:
        return "capacity search"
    scenario = document.scenario
    parts = [scenario.kind]
    parts += [f"{scenario.rate_rps:g}/s"] if scenario.rate_rps is not None else []
    parts += [f"to {scenario.to_rps:g}/s"] if scenario.to_rps is not None else []
    parts += [count_text(scenario.callers, "caller")] if scenario.callers is not None else []
    parts += [f"CV {scenario.cv:g}"] if scenario.cv is not None else []
    parts += [f"think time {scenario.think_s:g} s"] if scenario.think_s else []
    parts += [f"on {scenario.on_s:g} s, off {scenario.off_s:g} s"] if scenario.on_s and scenario.off_s else []
    # These loads change over their length, so that it is a part of them.
    parts += [f"over {scenario.duration_s:g} s"] if scenario.kind == "ramp" else []
    parts += [f"{scenario.requests} requests"] if scenario.kind == "offline" and scenario.requests is not None else []
    parts += [f"{scenario.trace_requests} arrivals"] if scenario.trace_requests is not None else []
    return " ".join(parts)


def _gpu(document: BenchDocument) -> str:
    return (document.place.gpu_product if document.place is not None else None) or "not known"


def _replicas(document: BenchDocument) -> str:
    replicas = document.place.replicas if document.place is not None else None
    return "not known" if replicas is None else str(replicas)
