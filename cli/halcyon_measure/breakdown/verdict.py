"""The verdict on a run: the figures of its document, the rules that hold, and one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from halcyon_measure.breakdown.limits import FIGURES, RULES, Rule
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.figure import Figure, unmeasured
from halcyon_measure.results.sections.phases import PhaseName, Phases
from halcyon_measure.results.sections.verdict import Evidence, LimitName, Verdict

_ENOUGH = 20
"""Minimum number of requests of a replica for a meaningful mean."""
_BEFORE_SENDING: tuple[PhaseName, ...] = ("prepare", "serialise", "late")
_NO_MEMORY = ("out of memory", "cudaerrormemoryallocation", "failed to allocate", "cuda_error_out_of_memory")


def judge(figures: Mapping[str, Figure]) -> Verdict:
    """Return the verdict on figures by the names in `FIGURES`."""
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
    said = " and ".join(one.what for one in evidence if one.figure.value is not None)
    field = f" ({first.field})" if first.field else ""
    if first.limit == "nothing":
        head = f"Nothing limits: {said}; to find a limit, give {first.change.split(':')[0]}."
    else:
        also = f", or {' or '.join(others)} does: unsure" if others else ""
        head = f"Limit: {first.limit}{also}. {said[:1].upper()}{said[1:]}; what would change it: {first.change}{field}."
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
    found: dict[str, Figure] = {}
    requests, client = document.requests, document.client
    due = requests.due

    def share(value: float, source: str) -> Figure:
        return Figure(value=value, unit="ratio", n=due, source=source)

    found["client_cores"] = client.cores
    found["late_ms"] = client.late_p99
    found["client_limits"] = share(client.limit in {"client CPU", "cores"}, client.evidence)
    found["hooks_limit"] = share(client.limit == "preparing", client.evidence)
    if due:
        found["rejected"] = share(requests.rejected / due, "outcomes of the requests")
        found["answered"] = share(requests.answered / due, "outcomes of the requests")
        found["failed"] = share(1 - requests.answered / due, "outcomes of the requests")
        memory = sum(one.count for one in document.failures if any(text in one.message.lower() for text in _NO_MEMORY))
        found["memory_failures"] = share(memory / due, "messages of the failures")
    if document.phases is not None:
        found |= _of_phases(document.phases)
    if document.batches is not None:
        found |= {"busy": document.batches.busy, "fill": document.batches.fill}
        if document.batches.delay is not None and document.batches.delay.value:
            found["delay_ms"] = document.batches.delay
    return found | _of_hardware(document)


def _of_phases(phases: Phases) -> dict[str, Figure]:
    whole = phases.end_to_end
    by_name = {part.name: part.mean for part in phases.parts}
    if not whole.value:
        return {}
    found: dict[str, Figure] = {}

    def put(name: str, parts: Sequence[str], of_ms: float = whole.value) -> None:
        known = [by_name[part] for part in parts if part in by_name and by_name[part].value is not None]
        if not known:
            return
        total = sum(figure.value or 0.0 for figure in known)
        source = f"phases {', '.join(parts)}"
        found[f"{name}_ms"] = Figure(value=total, unit="ms", n=whole.n, source=source)
        found[f"{name}_share"] = Figure(value=total / of_ms, unit="ratio", n=whole.n, source=source)

    put("prepare", ("prepare", "serialise"))
    put("balancer", ("balancer_held", "balancer_queued"))
    put("queue", ("queue",))
    if by_name["queue"].value is not None:
        # A client that sends late must not hide that the server is full.
        before = sum(by_name[part].value or 0.0 for part in _BEFORE_SENDING if part in by_name)
        put("waiting", ("balancer_held", "balancer_queued", "queue"), max(whole.value - before, 0.0) or whole.value)
    put("model", ("input", "model", "output"))
    put("transmission", ("send", "receive"))
    # If the server's phases weren't measured, the rest contains them.
    if by_name["model"].value is not None and phases.adds_up:
        put("rest", ("rest",))
    unknown = by_name["balancer_queued"].value is None
    found["balancer_unknown"] = Figure(value=unknown, unit="ratio", n=1, source=by_name["balancer_queued"].reason)
    return found


def _of_hardware(document: BenchDocument) -> dict[str, Figure]:
    hardware = document.hardware
    if hardware is None:
        return {}
    found = {
        "throttled": hardware.server_throttled,
        "gpu_utilization": hardware.gpu_utilization.mean,
        "gpu_at_80": hardware.gpu_at_80,
    }
    if hardware.server_core_wait.mean.value is not None:
        found["core_wait"] = hardware.server_core_wait.mean
    if hardware.machine_cpu.mean.value is not None:
        found["machine_cpu"] = hardware.machine_cpu.mean
    used, limit = hardware.server_cpu.mean, hardware.server_cpu_limit
    if used.value is not None and limit.value:
        found["cpu_share"] = used.model_copy(update={"value": used.value / limit.value, "unit": "ratio"})
    elif hardware.machine_cpu.mean.value is not None:
        found["cpu_share"] = hardware.machine_cpu.mean
    memory, total = hardware.gpu_memory.max, hardware.gpu_memory_total
    if memory.value is not None and total.value:
        found["gpu_memory_share"] = memory.model_copy(update={"value": memory.value / total.value, "unit": "ratio"})
    known = [
        (one.model.value, one.requests.value)
        for one in hardware.replicas
        if one.model.value and one.requests.value and one.requests.value >= _ENOUGH
    ]
    if len(known) > 1:
        slow, count = max(known)
        others = median(model for model, _ in known if model != slow or len(known) == 1) if len({
            model for model, _ in known
        }) > 1 else slow  # fmt: skip
        total_requests = sum(requests for _, requests in known)
        source = "Triton's counters of the replicas"
        found["slowest_pod"] = Figure(value=slow / others, unit="ratio", n=len(known), source=source)
        found["pod_share"] = Figure(value=count / total_requests, unit="ratio", n=int(total_requests), source=source)
    return found


def _evidence(name: str, figures: Mapping[str, Figure]) -> Evidence:
    figure = figures.get(name) or unmeasured("ratio", "it wasn't measured")
    said = "not measured" if figure.value is None else _said(figure)
    return Evidence(what=FIGURES[name].format(said), figure=figure)


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


def _said(figure: Figure) -> str:
    value = figure.value or 0.0
    if figure.unit == "ratio":
        return f"{100 * value:.0f} %"
    return f"{value:.2f} {figure.unit}" if value < 10 else f"{value:.0f} {figure.unit}"
