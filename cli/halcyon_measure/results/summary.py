"""Construction of a run's document from its requests. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from halcyon_measure.protocols.reply import Outcome
from halcyon_measure.protocols.target import Target
from halcyon_measure.results import distribution, statistics, tally
from halcyon_measure.results.client_limit import ClientLimit, judge
from halcyon_measure.results.document import (
    BenchDocument,
    ClientUse,
    FailureKind,
    InputShape,
    Latencies,
    MeasuredScenario,
    MeasuredTarget,
    PodShare,
    Requests,
    RunFacts,
    Second,
)
from halcyon_measure.results.durations import SOURCE, Durations
from halcyon_measure.results.figure import Figure, unmeasured
from halcyon_measure.results.number_text import number
from halcyon_measure.results.run import Run
from halcyon_measure.results.tally import Tally
from halcyon_measure.schedule.scenario import Scenario
from halcyon_measure.stats.proportion import share_interval

PERCENTILES = (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p99_9", 0.999))
_MAX_FAILURES = 20
_EXPECTED = "answers compared with the expected outputs"


def build(
    run: Run,
    target: Target,
    scenario: Scenario,
    *,
    preset: str,
    rows: str,
    objective_s: float | None,
    prepares: bool,
    program: str,
    timestamp: str,
) -> BenchDocument:
    """Return the document of a run."""
    is_at_once = scenario.kind == "offline"
    counted, length = tally.of(run, objective_s, is_at_once=is_at_once), run.measured_s
    # Callers wait for their answers, so they send no more than a server answers.
    answering_s = counted.answering_s if scenario.is_open and not is_at_once else length
    is_behind = answering_s > length
    latency = counted.answered["latency"]
    late, p50 = counted.late.percentile(0.99), latency.percentile(0.5)
    # In `offline` all requests are due at once, so most of them are sent late by design.
    limit = judge(run.usage, late_p99_s=late, p50_s=p50, is_open=scenario.is_open and not is_at_once)
    requests = _requests(counted)
    behind = ""
    if is_behind and scenario.kind == "sustained":
        behind = (
            f"the server fell behind: {number(counted.due / length)} requests/s were due, and it answered "
            f"{number(counted.answer_count / answering_s)}, so its latency grows with the length of the run"
        )
    failures = _failures(counted, run.messages)
    n = counted.answer_count
    return BenchDocument(
        made_by=program,
        made_at=timestamp,
        target=_target(target, rows),
        scenario=_scenario(scenario, preset),
        run=_facts(run, requests, limit, failures, behind=behind),
        requests=requests,
        offered=Figure(value=counted.due / length, unit="requests/s", n=counted.due, source="due times"),
        throughput=Figure(
            value=n / answering_s,
            unit="requests/s",
            n=n,
            interval=None if counted.blocks is None else _scaled(counted.blocks.rate(), length / answering_s),
            source="answers, over the time in which they ended, because the server fell behind"
            if is_behind
            else f"answers, by the second {'in which they ended' if is_at_once else 'they were due'}",
        ),
        goodput=_goodput(counted, length=length, answering_s=answering_s, objective_s=objective_s),
        rows=Figure(value=requests.rows / answering_s, unit="rows/s", n=n, source="rows of the answers"),
        latency=_latencies(latency, counted.latency_blocks, "due to done"),
        from_send=_latencies(counted.answered["from_send"], None, "sent to done"),
        first_byte=_latencies(counted.answered["first_byte"], None, "due to first byte"),
        prepare=_latencies(
            counted.answered["ready"] if prepares else Durations.of(np.array([])),
            None,
            "due to prepared",
            reason="" if prepares else "requests were prepared before the run",
        ),
        failures=failures,
        timeline=_timeline(counted),
        pods=tuple(PodShare(pod=pod, answered=counted.pods[index]) for index, pod in enumerate(run.pods)),
        client=_client(run, limit, late, counted.due),
        distribution=distribution.of(latency, counted.answered["from_send"]),
    )


def accuracy(requests: Requests) -> Figure:
    """Return the share of the answers that are equal to the expected answers, with Wilson's 95 % interval."""
    n = requests.answered + requests.wrong
    if not n:
        return unmeasured("ratio", "no request was answered", _EXPECTED)
    share = requests.answered / n
    return Figure(value=share, unit="ratio", n=n, interval=share_interval(share, n), source=_EXPECTED)


def _target(target: Target, rows: str) -> MeasuredTarget:
    return MeasuredTarget(
        url=target.url,
        api=target.api,
        protocol=target.transport,
        encoding=target.encoding,
        shared_memory=target.shared_memory,
        model=target.model,
        version=target.version,
        inputs=tuple(
            InputShape(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape) for tensor in target.inputs
        ),
        rows=rows,
    )


def _scenario(scenario: Scenario, preset: str) -> MeasuredScenario:
    return MeasuredScenario(
        kind=scenario.kind,
        preset=preset,
        duration_s=scenario.duration_s if scenario.kind != "trace" else scenario.trace[-1],
        requests=scenario.requests,
        callers=scenario.callers if scenario.kind in {"blocking", "offline"} else None,
        think_s=scenario.think_s if scenario.kind == "blocking" else None,
        rate_rps=scenario.rate_rps,
        to_rps=scenario.to_rps,
        cv=scenario.cv,
        on_s=scenario.on_s,
        off_s=scenario.off_s,
        trace_requests=len(scenario.trace) or None,
        seed=scenario.seed,
    )


def _requests(counted: Tally) -> Requests:
    counts = counted.outcomes
    return Requests(
        due=counted.due,
        answered=counts[Outcome.ANSWERED],
        rejected=counts[Outcome.REJECTED],
        timed_out=counts[Outcome.TIMED_OUT],
        disconnected=counts[Outcome.DISCONNECTED],
        errors=counts[Outcome.ERROR],
        wrong=counts[Outcome.WRONG],
        not_sent=counts[Outcome.NOT_SENT],
        good=counted.good,
        rows=counted.rows,
    )


def _facts(
    run: Run, requests: Requests, limit: ClientLimit, failures: Sequence[FailureKind], *, behind: str
) -> RunFacts:
    reasons: list[str] = []
    if run.partial:
        reasons.append("the run was interrupted")
    if run.settled is False and not run.partial:
        reasons.append(f"rate and median latency had not settled after {run.warm_up_s:.0f} s of warm-up")
    if not requests.answered:
        reasons.append("no request was answered")
    if behind:
        reasons.append(behind)
    if limit.limit != "none":
        reasons.append(f"the client limits ({limit.limit}): {limit.evidence}")
    unsent = [
        f"{failure.count} requests were {failure.message}"
        for failure in failures
        if failure.outcome == Outcome.NOT_SENT.name.lower()
    ]
    reasons += unsent or ([f"{requests.not_sent} requests were not sent"] if requests.not_sent else [])
    return RunFacts(
        warm_up_s=round(run.warm_up_s, 3),
        settled=run.settled,
        measured_s=round(run.measured_s, 6),
        partial=run.partial,
        histogram=run.folded is not None,
        valid=not reasons,
        invalid_because=tuple(reasons),
    )


def _scaled(interval: statistics.Interval | None, factor: float) -> statistics.Interval | None:
    return None if interval is None else (factor * interval[0], factor * interval[1])


def _goodput(counted: Tally, *, length: float, answering_s: float, objective_s: float | None) -> Figure:
    if objective_s is None or counted.good is None:
        return Figure(
            value=None,
            unit="requests/s",
            n=0,
            source="answers within the objective",
            reason="no objective is given; for example --objective 500ms",
        )
    return Figure(
        value=counted.good / answering_s,
        unit="requests/s",
        n=counted.good,
        interval=None
        if counted.blocks is None
        else _scaled(counted.blocks.rate(counted.good_by_second), length / answering_s),
        source=f"answers within {1000 * objective_s:g} ms",
    )


def _latencies(values: Durations, blocks: statistics.Blocks | None, source: str, *, reason: str = "") -> Latencies:
    reason = reason or ("" if values.n else "no request was answered")
    source = f"{source}; {SOURCE}" if values.is_counted else source

    def figure(value: float | None, interval: statistics.Interval | None = None, uncertainty: str = "") -> Figure:
        if interval is not None and value is not None:
            # The interval is of bins half a percent wide, and the value is exact.
            interval = min(interval[0], value), max(interval[1], value)
        return Figure(
            value=None if value is None else 1000 * value,
            unit="ms",
            n=values.n,
            interval=None if interval is None else (1000 * interval[0], 1000 * interval[1]),
            source=source,
            reason=reason or uncertainty,
        )

    figures = {}
    for name, share in PERCENTILES:
        uncertainty = "" if statistics.supports(values.n, share) else "fewer than ten requests lie above it"
        value = values.percentile(share)
        figures[name] = figure(
            value, blocks.percentile(share) if blocks is not None and values.n else None, uncertainty
        )
    return Latencies(mean=figure(values.mean), max=figure(values.largest if values.n else None), **figures)


def _failures(counted: Tally, messages: Sequence[str]) -> tuple[FailureKind, ...]:
    kinds = [
        FailureKind(
            outcome=failure.outcome.name.lower(),
            message=messages[failure.kind],
            count=failure.count,
            first_s=round(failure.first_s, 3),
            last_s=round(failure.last_s, 3),
        )
        for failure in counted.failures
    ]
    return tuple(sorted(kinds, key=lambda kind: -kind.count)[:_MAX_FAILURES])


def _timeline(counted: Tally) -> tuple[Second, ...]:
    return tuple(
        Second(
            t_s=float(start),
            due=second.due,
            answered=second.answered,
            failed=second.due - second.answered,
            p50_ms=None if second.p50_s is None else round(1000 * second.p50_s, 3),
            p99_ms=None if second.p99_s is None else round(1000 * second.p99_s, 3),
        )
        for start, second in enumerate(counted.seconds)
    )


def _client(run: Run, limit: ClientLimit, late: float | None, due: int) -> ClientUse:
    cpu = sum(process["cpu_s"] for process in run.usage)
    wall = max((process["wall_s"] for process in run.usage), default=0.0)
    longest = max((process["gc_longest_s"] for process in run.usage), default=0.0)
    source = "getrusage of the processes of the load"
    return ClientUse(
        processes=len(run.usage),
        cores=Figure(value=cpu / wall, unit="cores", n=due, source=source)
        if wall
        else unmeasured("cores", "no process of the load reported its use", source),
        cpu_per_request=Figure(value=1e6 * cpu / due, unit="us", n=due, source=source)
        if due
        else unmeasured("us", "no request was due", source),
        late_p99=Figure(value=1000 * late, unit="ms", n=due, source="prepared to sent")
        if late is not None
        else unmeasured("ms", "no request was sent", "prepared to sent"),
        gc_longest=Figure(value=1000 * longest, unit="ms", n=due, source="callbacks of the collector"),
        limit=limit.limit,
        evidence=limit.evidence,
        remedy=limit.remedy,
    )
