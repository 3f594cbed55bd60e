"""Sections of a document that explain a run, computed from its requests and from the readings taken during it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from statistics import mean

from halcyon_measure.breakdown import batches, energy, growth, hardware, phases, verdict
from halcyon_measure.breakdown.energy import Prices
from halcyon_measure.breakdown.phases import ClientFacts, Means
from halcyon_measure.protocols.reply import Outcome
from halcyon_measure.results import tally
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.observations import (
    BalancerSample,
    Counters,
    Observations,
    Readings,
    Statistics,
)
from halcyon_measure.results.run import Run

MIN_SAMPLES = 5
"""Minimum number of readings of a queue's length for a meaningful mean."""
_OF_STEPS = (
    "{model} is an ensemble, which executes nothing itself: queue, batches and model are those of its steps. Latency, rate, failures, "
    "capacity, GPU and energy are measured over all steps; a step alone: --model {step}"
)
_NOTHING_READ = "nothing was read of the server, because sampling is off"


def added(
    document: BenchDocument,
    run: Run,
    *,
    prices: Prices,
    prepares: bool,
    finishes: bool,
    in_flight: int = 0,
) -> BenchDocument:
    """Return the document with the sections for phases, hardware, batches, energy and the verdict added.

    `in_flight` is the number of warm-up requests that may end in the measured part.
    """
    observations = run.observations
    answered, outcomes = tally.answered(run), tally.outcomes(run)
    client = ClientFacts(
        prepares=prepares,
        finishes=finishes,
        # The gRPC client reports headers only on request. They are requested for the name of the pod.
        has_first_byte=document.target.protocol == "http" or bool(run.pods),
        encode_each_s=max(
            (process["encode_each_s"] for process in run.usage if "encode_each_s" in process), default=None
        ),
    )
    if observations is None:
        parts = phases.build(answered, client, Means(no_server=_NOTHING_READ, no_balancer=_NOTHING_READ))
        return verdict.judged(document.model_copy(update={"phases": parts}))
    executed = outcomes[Outcome.ANSWERED] + outcomes[Outcome.WRONG]
    slack = in_flight + outcomes[Outcome.TIMED_OUT]
    if observations.config.steps:
        statistics, counters = None, None
        reason = _OF_STEPS.format(model=document.target.model, step=observations.config.steps[0])
    else:
        statistics, counters, reason = _server(observations, executed, slack)
    held, queued, no_balancer, source = balancer(observations)
    replicas = max(len([server for server in observations.servers if server.samples]), 1)
    means = Means(
        server=counters,
        no_server=reason,
        held_s=held,
        queued_s=queued,
        no_balancer=no_balancer,
        balancer_source=source,
    )
    explained = document.model_copy(
        update={
            "phases": phases.build(answered, client, means),
            "hardware": hardware.build(observations, wall_s=observations.span_s),
            "batches": batches.build(
                statistics, observations.config, wall_s=observations.span_s, replicas=replicas, reason=reason
            ),
            "energy": energy.build(
                observations,
                prices,
                rows=document.requests.rows,
                rows_per_s=document.rows.value or 0.0,
                wall_s=observations.span_s,
            ),
        }
    )
    return verdict.judged(explained)


def _server(observations: Observations, answered: int, slack: int) -> tuple[Statistics | None, Counters | None, str]:
    """Return the growth of the server's statistics and of its counters, and the reason why one is missing or doubtful.

    If the statistics aren't plausible, the counters of the metrics are used, because they are read from each replica.
    """
    statistics, reason = None, observations.no_statistics
    if observations.before is not None and observations.after is not None:
        statistics, reason = growth.of_statistics(observations.before, observations.after)
        if statistics is not None:
            is_usable, reason = growth.doubt(statistics.counters, answered, slack)
            if is_usable:
                return statistics, statistics.counters, reason
            statistics = None
    replicas = [
        replica_growth
        for server in observations.servers
        if (replica_growth := growth.of_samples(server.samples)) is not None
    ]
    if not replicas:
        return None, None, reason or "the server's statistics couldn't be read"
    total = Counters(0, 0, 0, 0, 0, 0, 0)
    for replica in replicas:
        total = total.plus(replica.counters)
    is_usable, counter_doubt = growth.doubt(total, answered, slack)
    return statistics, total if is_usable else None, counter_doubt if not is_usable else reason


def balancer(observations: Observations) -> tuple[float | None, float | None, str, str]:
    """Return the mean times that requests were held and queued in the balancers, in seconds.

    The third value is the reason why a time is missing, and the fourth is the source.

    The agents publish request durations with and without the wait in the balancer. The mean time for which requests
    were held follows from the mean number of held requests (Little's law).
    """
    readable = [readings for readings in observations.balancers if len(readings.samples) > 1]
    if not readable:
        reason = next(
            (readings.reason for readings in observations.balancers if readings.reason), observations.no_balancer
        )
        return None, None, reason or "the balancers' metrics were read once only", ""
    requests = _sum(readable, lambda sample: sample.requests)
    request_s = _sum(readable, lambda sample: sample.request_s)
    responses = _sum(readable, lambda sample: sample.responses)
    response_s = _sum(readable, lambda sample: sample.response_s)
    if requests is None or requests <= 0:
        return None, None, "the balancers' counters stand still, or ran backwards", ""
    if request_s is None or response_s is None or not responses:
        return _haproxy(readable, requests, observations.span_s)
    waited = max(request_s / requests - response_s / responses, 0.0)
    gauges = [[sample.held for sample in readings.samples if sample.held is not None] for readings in readable]
    held = sum(mean(values) for values in gauges if values) * observations.span_s / requests
    held = min(held, waited)
    return held, waited - held, "", "the agents' histograms, with and without the balancer"


def _haproxy(
    balancers: list[Readings[BalancerSample]], requests: float, span_s: float
) -> tuple[float | None, float | None, str, str]:
    """Return the mean time in HAProxy's queues by Little's law, in the form of `balancer`.

    HAProxy's own mean isn't used, because it covers an unknown number of requests.
    """
    gauges = [[sample.queued for sample in readings.samples if sample.queued is not None] for readings in balancers]
    fewest = min((len(values) for values in gauges), default=0)
    if fewest < MIN_SAMPLES:
        return None, None, f"HAProxy's queue was read {fewest} times; {MIN_SAMPLES} are needed", ""
    queued = sum(mean(values) for values in gauges) * span_s / requests
    return None, queued, "HAProxy publishes no held requests", "HAProxy's queue, once a second, by Little's law"


def _sum(
    balancers: Iterable[Readings[BalancerSample]], value: Callable[[BalancerSample], float | None]
) -> float | None:
    """Return the growth of a counter, summed over all balancers.

    The result is None if the counter decreased in a balancer, or was read fewer than two times there.
    """
    total = 0.0
    for readings in balancers:
        values = [reading for sample in readings.samples if (reading := value(sample)) is not None]
        if len(values) < 2 or any(b < a for a, b in pairwise(values)):  # a difference needs two
            return None
        total += values[-1] - values[0]
    return total
