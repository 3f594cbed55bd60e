"""The document of a run, from its requests. Pure."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from halcyon_measure.protocols.reply import Outcome
from halcyon_measure.protocols.target import Target
from halcyon_measure.results import distribution, statistics
from halcyon_measure.results.client_limit import ClientLimit, judge
from halcyon_measure.results.columns import Columns, Floats
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
from halcyon_measure.results.figure import Figure, unmeasured
from halcyon_measure.results.run import Run
from halcyon_measure.schedule.scenario import Scenario

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
    made_by: str,
    made_at: str,
) -> BenchDocument:
    """Return the document of a run."""
    columns, length = run.columns, run.measured_s
    answered = columns.outcome == Outcome.ANSWERED
    ended = columns.where(answered)
    latency = ended.finished - ended.due
    blocks = statistics.Blocks(ended.due, latency, length)
    late = _percentile((columns.sent - columns.prepared)[np.isfinite(columns.sent)], 0.99)
    p50 = statistics.percentile(latency, 0.5)
    # What is due at once can't be sent at once: in `offline` it waits by design.
    limit = judge(run.usage, late_p99_s=late, p50_s=p50, is_open=scenario.is_open and scenario.kind != "offline")
    requests = _requests(columns, latency, objective_s)
    n = len(ended)
    return BenchDocument(
        made_by=made_by,
        made_at=made_at,
        target=_target(target, rows),
        scenario=_scenario(scenario, preset),
        run=_facts(run, requests, limit, scenario),
        requests=requests,
        offered=Figure(value=len(columns) / length, unit="requests/s", n=len(columns), source="due times"),
        throughput=Figure(
            value=n / length,
            unit="requests/s",
            n=n,
            interval=blocks.rate(),
            source="answers, by the second they were due",
        ),
        goodput=_goodput(requests, ended=ended, latency=latency, blocks=blocks, length=length, objective_s=objective_s),
        rows=Figure(value=requests.rows / length, unit="rows/s", n=n, source="rows of the answers"),
        latency=_latencies(latency, blocks, "due to done"),
        from_send=_latencies(ended.done - ended.sent, None, "sent to done"),
        first_byte=_latencies(ended.first_byte - ended.due, None, "due to first byte"),
        prepare=_latencies(
            ended.prepared - ended.due if prepares else np.array([]),
            None,
            "due to prepared",
            reason="" if prepares else "requests were prepared before the run",
        ),
        failures=_failures(columns, run.messages),
        timeline=_timeline(columns, answered, length),
        pods=_pods(ended, run.pods),
        client=_client(run, limit, late, len(columns)),
        distribution=distribution.of(latency, ended.done - ended.sent),
    )


def accuracy(requests: Requests) -> Figure:
    """Return the share of the answers that are the expected ones, with its 95 % interval (Wilson's)."""
    n = requests.answered + requests.wrong
    if not n:
        return unmeasured("ratio", "no request was answered", _EXPECTED)
    share, z = requests.answered / n, 1.96
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    reach = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    interval = (max(middle - reach, 0.0), min(middle + reach, 1.0))
    return Figure(value=share, unit="ratio", n=n, interval=interval, source=_EXPECTED)


def _percentile(values: Floats, share: float) -> float | None:
    return statistics.percentile(values, share)


def _target(target: Target, rows: str) -> MeasuredTarget:
    return MeasuredTarget(
        url=target.url,
        api=target.api,
        protocol=target.transport,
        encoding=target.encoding,
        shared_memory=target.shared_memory,
        model=target.model,
        version=target.version,
        inputs=tuple(InputShape(name=one.name, datatype=one.datatype, shape=one.shape) for one in target.inputs),
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


def _requests(columns: Columns, latency: Floats, objective_s: float | None) -> Requests:
    counts = Counter(columns.outcome.tolist())
    answered = columns.outcome == Outcome.ANSWERED
    return Requests(
        due=len(columns),
        answered=counts[Outcome.ANSWERED],
        rejected=counts[Outcome.REJECTED],
        timed_out=counts[Outcome.TIMED_OUT],
        disconnected=counts[Outcome.DISCONNECTED],
        errors=counts[Outcome.ERROR],
        wrong=counts[Outcome.WRONG],
        not_sent=counts[Outcome.NOT_SENT],
        good=None if objective_s is None else int(np.count_nonzero(latency <= objective_s)),
        rows=int(columns.rows[answered].sum()),
    )


def _facts(run: Run, requests: Requests, limit: ClientLimit, scenario: Scenario) -> RunFacts:
    reasons: list[str] = []
    if run.partial:
        reasons.append("the run was interrupted")
    if run.settled is False and not run.partial:
        reasons.append(f"rate and median latency had not settled after {run.warm_up_s:.0f} s of warm-up")
    if not requests.answered:
        reasons.append("no request was answered")
    if limit.limit != "none":
        reasons.append(f"the client limits ({limit.limit}): {limit.evidence}")
    if requests.not_sent:
        reasons.append(
            f"{requests.not_sent} requests were not sent, because {scenario.max_in_flight} were in flight"
            if scenario.kind != "offline"
            else f"{requests.not_sent} requests were not sent before the end"
        )
    return RunFacts(
        warm_up_s=round(run.warm_up_s, 3),
        settled=run.settled,
        measured_s=round(run.measured_s, 6),
        partial=run.partial,
        valid=not reasons,
        invalid_because=tuple(reasons),
    )


def _goodput(
    requests: Requests,
    *,
    ended: Columns,
    latency: Floats,
    blocks: statistics.Blocks,
    length: float,
    objective_s: float | None,
) -> Figure:
    if objective_s is None or requests.good is None:
        return Figure(
            value=None,
            unit="requests/s",
            n=0,
            source="answers within the objective",
            reason="no objective is given; for example --objective 500ms",
        )
    good = statistics.per_second(ended.due, length, latency <= objective_s)
    return Figure(
        value=requests.good / length,
        unit="requests/s",
        n=requests.good,
        interval=blocks.rate(good),
        source=f"answers within {1000 * objective_s:g} ms",
    )


def _latencies(values: Floats, blocks: statistics.Blocks | None, source: str, *, reason: str = "") -> Latencies:
    reason = reason or ("" if len(values) else "no request was answered")

    def figure(value: float | None, interval: statistics.Interval | None = None, why: str = "") -> Figure:
        return Figure(
            value=None if value is None else 1000 * value,
            unit="ms",
            n=len(values),
            interval=None if interval is None else (1000 * interval[0], 1000 * interval[1]),
            source=source,
            reason=reason or why,
        )

    found = {}
    for name, share in PERCENTILES:
        few = "" if statistics.supports(len(values), share) else "fewer than ten requests lie above it"
        value = statistics.percentile(values, share)
        found[name] = figure(value, blocks.percentile(share) if blocks is not None and len(values) else None, few)
    return Latencies(
        mean=figure(float(np.mean(values)) if len(values) else None),
        max=figure(float(np.max(values)) if len(values) else None),
        **found,
    )


def _failures(columns: Columns, messages: Sequence[str]) -> tuple[FailureKind, ...]:
    kinds: list[FailureKind] = []
    failed = columns.outcome != Outcome.ANSWERED
    for outcome in Outcome:
        for index in np.unique(columns.kind[failed & (columns.outcome == outcome)]).tolist():
            due = columns.due[(columns.outcome == outcome) & (columns.kind == index)]
            kinds.append(
                FailureKind(
                    outcome=outcome.name.lower(),
                    message=messages[index],
                    count=len(due),
                    first_s=round(float(due.min()), 3),
                    last_s=round(float(due.max()), 3),
                )
            )
    return tuple(sorted(kinds, key=lambda kind: -kind.count)[:_MAX_FAILURES])


def _timeline(columns: Columns, answered: npt.NDArray[np.bool_], length: float) -> tuple[Second, ...]:
    second = np.floor(columns.due).astype(np.int64)
    bounds = np.searchsorted(second, np.arange(int(np.ceil(length)) + 1))
    made = []
    for start, (first, last) in enumerate(itertools.pairwise(bounds.tolist())):
        ok = answered[first:last]
        latency = (columns.finished[first:last] - columns.due[first:last])[ok]
        p50, p99 = statistics.percentile(latency, 0.5), statistics.percentile(latency, 0.99)
        made.append(
            Second(
                t_s=float(start),
                due=int(last - first),
                answered=int(ok.sum()),
                failed=int(last - first - ok.sum()),
                p50_ms=None if p50 is None else round(1000 * p50, 3),
                p99_ms=None if p99 is None else round(1000 * p99, 3),
            )
        )
    return tuple(made)


def _pods(ended: Columns, pods: Sequence[str]) -> tuple[PodShare, ...]:
    counts = Counter(ended.pod.tolist())
    return tuple(PodShare(pod=pod, answered=counts[index]) for index, pod in enumerate(pods))


def _client(run: Run, limit: ClientLimit, late: float | None, due: int) -> ClientUse:
    cpu = sum(one["cpu_s"] for one in run.usage)
    wall = max((one["wall_s"] for one in run.usage), default=0.0)
    longest = max((one["gc_longest_s"] for one in run.usage), default=0.0)
    source = "getrusage of the processes of the load"
    return ClientUse(
        processes=len(run.usage),
        cores=Figure(value=cpu / wall if wall else None, unit="cores", n=due, source=source),
        cpu_per_request=Figure(value=1e6 * cpu / due if due else None, unit="us", n=due, source=source),
        late_p99=Figure(value=None if late is None else 1000 * late, unit="ms", n=due, source="prepared to sent"),
        gc_longest=Figure(value=1000 * longest, unit="ms", n=due, source="callbacks of the collector"),
        limit=limit.limit,
        evidence=limit.evidence,
        remedy=limit.remedy,
    )
