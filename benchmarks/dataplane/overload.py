"""Part `overload`: three times the requests that two replicas can handle, each with a deadline of one second.

The result is the goodput: responses within the deadline per second, divided by the capacity. It covers the whole
overload, including its first seconds. The capacity is the throughput of the same pods in a closed loop that keeps their
batches full, measured directly before.
"""

import math
from dataclasses import dataclass
from statistics import median

from benchmarks import open_loop, pods
from benchmarks.dataplane import stage
from benchmarks.dataplane.results import PartResults
from benchmarks.open_loop import Sent
from benchmarks.profile import Phase, Profile
from benchmarks.rows import quantile
from demo.kube import Kube
from e2e.cluster.progress import say
from e2e.load import process
from e2e.load.settings import Load

_SERVERS = 2
_TIMES = 3.0
_DEADLINE_S = 1.0
_QUEUE_LIMIT = 200
_CLIENTS = 64
_ONSET_S = 4.0
"""Time in seconds that the balancer's rule for rejecting on arrival needs to learn the servers' rate
(docs/concepts/overload.md)."""
_SEED = 1


@dataclass(frozen=True)
class Overload:
    """The result of one run."""

    capacity_rps: float
    goodput: float
    """Responses within the deadline per second, divided by the capacity."""
    later: float
    """The same without the first seconds (`_ONSET_S`)."""
    accepted_p99_s: float | None
    failures: dict[str, int]


def run(kube: Kube, *, short: bool) -> PartResults:
    """Run the part. Full: 20 s with one and with two balancers, twice each, 2.5 minutes. Short: 10 s, once each."""
    rounds, for_s, capacity_s = (1, 10.0, 5.0) if short else (2, 20.0, 6.0)
    kube.apply(pods.files())
    by_balancers: dict[int, list[Overload]] = {}
    for balancers in (1, 2):
        document = pods.model(f"overload-{balancers}", start_s=0.1, replicas=_SERVERS, queueLimit=_QUEUE_LIMIT)
        document["spec"]["traffic"]["balancerReplicas"] = balancers
        with stage.served(kube, document, replicas=_SERVERS) as name:
            for _ in range(rounds):
                by_balancers.setdefault(balancers, []).append(_overload(kube, name, for_s, capacity_s))
                say(f"bench: {name}: {by_balancers[balancers][-1]}")
    goodputs = {count: median(overload.goodput for overload in overloads) for count, overloads in by_balancers.items()}
    return PartResults(
        figures={"goodput_at_3x": round(min(goodputs.values()), 3)},
        details={
            f"with {count} balancer{'s' * (count > 1)}": {
                "goodput": round(goodputs[count], 3),
                "goodput_after_4_s": round(median(overload.later for overload in overloads), 3),
                "capacity_rps": round(median(overload.capacity_rps for overload in overloads), 1),
                "accepted_p99_s": max((overload.accepted_p99_s or 0.0 for overload in overloads), default=None),
                "failures": overloads[-1].failures,
            }
            for count, overloads in by_balancers.items()
        },
        stand_ins=pods.STAND_INS,
    )


def _overload(kube: Kube, name: str, for_s: float, capacity_s: float) -> Overload:
    address = pods.address(kube, name)
    loaded = Load(
        address=address,
        model=name,
        clients=_CLIENTS,
        channels=8,
        duration_s=capacity_s,
        input="x",
        shape=(1, 1),
        batch_output=None,
        who_output=None,
    )
    capacity = process.run(loaded).rate_rps
    profile = Profile((Phase(0.0, _TIMES * capacity),), for_s)
    with open_loop.running(address, name, profile, deadline_s=_DEADLINE_S, seed=_SEED) as running:
        sent = running.result()
    return outcome(sent, capacity_rps=capacity, for_s=for_s)


def outcome(sent: Sent, *, capacity_rps: float, for_s: float) -> Overload:
    """Return the result of an overload of `for_s` seconds."""
    in_time = [
        (at, latency)
        for at, latency in zip(sent.at_s, sent.latency_s, strict=True)
        if latency is not None and latency <= _DEADLINE_S and at + latency <= for_s
    ]
    later = sum(at + latency > _ONSET_S for at, latency in in_time)
    return Overload(
        capacity_rps=capacity_rps,
        goodput=round(len(in_time) / for_s / capacity_rps, 3),
        later=round(later / (for_s - _ONSET_S) / capacity_rps, 3) if for_s > _ONSET_S else math.nan,
        accepted_p99_s=quantile((latency for _, latency in in_time), 0.99),
        failures=dict(sorted(sent.failures.items(), key=lambda item: -item[1])[:4]),
    )
