"""Verdict on a run: the figures of its document, the rules that apply, and one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from halcyon_measure.breakdown.limits import FIGURES, RULES, Rule
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.figure import Figure, unmeasured
from halcyon_measure.results.sections.phases import PhaseName, Phases
from halcyon_measure.results.sections.verdict import Evidence, LimitName, Verdict

_ENOUGH = 20
"""Minimum number of requests to a replica for a meaningful mean."""
_BEFORE_SENDING: tuple[PhaseName, ...] = ("prepare", "serialise", "late")
_NO_MEMORY = ("out of memory", "cudaerrormemoryallocation", "failed to allocate", "cuda_error_out_of_memory")


def judge(figures: Mapping[str, Figure]) -> Verdict:
    """Return the verdict on the figures, which are given by the names in `FIGURES`."""
    values = {name: figure.value for name, figure in figures.items() if figure.value is not None}
    holding = [rule for rule in RULES if rule.holds(values)]
    # A limit that is only the consequence of another one that holds doesn't explain the run.
    caused = {limit for rule in holding for limit in rule.causes}
    roots: list[Rule] = []
    for rule in holding:
        if rule.limit not in caused and all(rule.limit != other.limit for other in roots):
            roots.append(rule)
    if not roots:
        return _unknown(figures)
    first, others = roots[0], tuple(rule.limit for rule in roots[1:])
    evidence = tuple(_evidence(name, figures) for name in first.evidence)
    text = " and ".join(entry.what for entry in evidence if entry.figure.value is not None)
    field = f" ({first.field})" if first.field else ""
    if first.limit == "nothing":
        head = f"Nothing limits: {text}; to find a limit, give {first.change.split(':')[0]}."
    else:
        also = f", or {' or '.join(others)} does: unsure" if others else ""
        head = f"Limit: {first.limit}{also}. {text[:1].upper()}{text[1:]}; what would change it: {first.change}{field}."
    return Verdict(
        limit=first.limit,
        unsure=bool(others),
        others=others,
        evidence=evidence,
        change=first.change,
        field=first.field,
        sentence=head,
    )


def judged(document: BenchDocument) -> BenchDocument:
    """Return the document with the verdict on its figures added."""
    return document.model_copy(update={"verdict": judge(figures_of(document))})


def figures_of(document: BenchDocument) -> dict[str, Figure]:
    """Return the figures that the rules use, read from the sections of a document."""
    figures: dict[str, Figure] = {}
    requests, client = document.requests, document.client
    due = requests.due

    def share(value: float, source: str) -> Figure:
        return Figure(value=value, unit="ratio", n=due, source=source)

    figures["client_cores"] = client.cores
    figures["late_ms"] = client.late_p99
    figures["client_limits"] = share(client.limit in {"client CPU", "cores"}, client.evidence)
    figures["hooks_limit"] = share(client.limit == "preparing", client.evidence)
    if due:
        figures["rejected"] = share(requests.rejected / due, "outcomes of the requests")
        figures["answered"] = share(requests.answered / due, "outcomes of the requests")
        figures["failed"] = share(1 - requests.answered / due, "outcomes of the requests")
        memory = sum(
            failure.count
            for failure in document.failures
            if any(text in failure.message.lower() for text in _NO_MEMORY)
        )
        figures["memory_failures"] = share(memory / due, "messages of the failures")
    if document.phases is not None:
        figures |= _of_phases(document.phases)
    if document.batches is not None:
        figures |= {"busy": document.batches.busy, "fill": document.batches.fill}
        if document.batches.delay is not None and document.batches.delay.value:
            figures["delay_ms"] = document.batches.delay
    return figures | _of_hardware(document)


def _of_phases(phases: Phases) -> dict[str, Figure]:
    latency = phases.end_to_end
    by_name = {part.name: part.mean for part in phases.parts}
    if not latency.value:
        return {}
    figures: dict[str, Figure] = {}

    def put(name: str, parts: Sequence[str], of_ms: float = latency.value) -> None:
        measured = [by_name[part] for part in parts if part in by_name and by_name[part].value is not None]
        if not measured:
            return
        total = sum(figure.value or 0.0 for figure in measured)
        source = f"phases {', '.join(parts)}"
        figures[f"{name}_ms"] = Figure(value=total, unit="ms", n=latency.n, source=source)
        figures[f"{name}_share"] = Figure(value=total / of_ms, unit="ratio", n=latency.n, source=source)

    put("prepare", ("prepare", "serialise"))
    put("balancer", ("balancer_held", "balancer_queued"))
    put("queue", ("queue",))
    if by_name["queue"].value is not None:
        # A client that sends late must not hide that the server is full.
        before_ms = sum(by_name[part].value or 0.0 for part in _BEFORE_SENDING if part in by_name)
        put(
            "waiting",
            ("balancer_held", "balancer_queued", "queue"),
            max(latency.value - before_ms, 0.0) or latency.value,
        )
    put("model", ("input", "model", "output"))
    put("transmission", ("send", "receive"))
    # If the server's phases weren't measured, the rest contains them.
    if by_name["model"].value is not None and phases.adds_up:
        put("rest", ("rest",))
    unknown = by_name["balancer_queued"].value is None
    figures["balancer_unknown"] = Figure(value=unknown, unit="ratio", n=1, source=by_name["balancer_queued"].reason)
    return figures


def _of_hardware(document: BenchDocument) -> dict[str, Figure]:
    hardware = document.hardware
    if hardware is None:
        return {}
    figures = {
        "throttled": hardware.server_throttled,
        "gpu_utilization": hardware.gpu_utilization.mean,
        "gpu_at_80": hardware.gpu_at_80,
    }
    if hardware.server_core_wait.mean.value is not None:
        figures["core_wait"] = hardware.server_core_wait.mean
    if hardware.machine_cpu.mean.value is not None:
        figures["machine_cpu"] = hardware.machine_cpu.mean
    used, limit = hardware.server_cpu.mean, hardware.server_cpu_limit
    if used.value is not None and limit.value:
        figures["cpu_share"] = used.model_copy(update={"value": used.value / limit.value, "unit": "ratio"})
    elif hardware.machine_cpu.mean.value is not None:
        figures["cpu_share"] = hardware.machine_cpu.mean
    memory, total = hardware.gpu_memory.max, hardware.gpu_memory_total
    if memory.value is not None and total.value:
        figures["gpu_memory_share"] = memory.model_copy(update={"value": memory.value / total.value, "unit": "ratio"})
    replicas = [
        (replica.model.value, replica.requests.value)
        for replica in hardware.replicas
        if replica.model.value and replica.requests.value and replica.requests.value >= _ENOUGH
    ]
    if len(replicas) > 1:
        slow, count = max(replicas)
        others = median(model for model, _ in replicas if model != slow or len(replicas) == 1) if len({
            model for model, _ in replicas
        }) > 1 else slow  # fmt: skip
        total_requests = sum(requests for _, requests in replicas)
        source = "Triton's counters of the replicas"
        figures["slowest_pod"] = Figure(value=slow / others, unit="ratio", n=len(replicas), source=source)
        figures["pod_share"] = Figure(value=count / total_requests, unit="ratio", n=int(total_requests), source=source)
    return figures


def _evidence(name: str, figures: Mapping[str, Figure]) -> Evidence:
    figure = figures.get(name) or unmeasured("ratio", "it wasn't measured")
    text = "not measured" if figure.value is None else _value_text(figure)
    return Evidence(what=FIGURES[name].format(text), figure=figure)


def _unknown(figures: Mapping[str, Figure]) -> Verdict:
    busy, answered = figures.get("busy"), figures.get("answered")
    reason = (busy.reason if busy is not None else "") or "no rule holds"
    if answered is not None and answered.value == 0:
        reason = "no request was answered, and the failures above say why"
    limit: LimitName = "unknown"
    return Verdict(
        limit=limit,
        unsure=True,
        others=(),
        evidence=tuple(_evidence(name, figures) for name in ("answered", "late_ms") if name in figures),
        change="statistics and metrics of the server that can be read; for example --metrics-url http://host:8002/metrics",
        field="",
        sentence=f"What limits is unknown: {reason}.",
    )


def _value_text(figure: Figure) -> str:
    value = figure.value or 0.0
    if figure.unit == "ratio":
        return f"{100 * value:.0f} %"
    return f"{value:.2f} {figure.unit}" if value < 10 else f"{value:.0f} {figure.unit}"
