"""What servers without a balancer count, as demand."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.documents.observation_report import PodSample, PodState
from halcyon.control.autoscaling.scraped_demand import ScrapedDemand


def pod(
    name: str,
    at: float,
    *,
    done: int | None,
    pending: int = 0,
    busy_us: int | None = None,
    state: PodState = "ready",
) -> PodSample:
    failed = None if done is None else 0
    return PodSample(name, state, at, pending=pending, succeeded=done, failed=failed, compute_us=busy_us)


def test_arrivals_are_answered_plus_waiting_requests() -> None:
    demand = ScrapedDemand()
    demand.sample([pod("a", 0, done=100), pod("b", 0, done=7)])
    sample = demand.sample([pod("a", 1, done=130, pending=5, busy_us=None), pod("b", 1, done=8)])

    assert sample is not None
    assert (sample.requests, sample.inflight, sample.queued, sample.rejected) == (36, 5, 0, 0)


def test_waiting_requests_are_not_counted_again_when_answered() -> None:
    demand = ScrapedDemand()
    for at, done, pending in ((0, 0, 0), (1, 10, 40), (2, 30, 20), (3, 50, 0)):
        sample = demand.sample([pod("a", at, done=done, pending=pending)])

    assert sample is not None
    assert sample.requests == 50


def test_computed_requests_are_in_flight() -> None:
    demand = ScrapedDemand()
    demand.sample([pod("a", 10, done=0, busy_us=0)])
    sample = demand.sample([pod("a", 12, done=40, pending=1, busy_us=6_000_000)])

    assert sample is not None
    assert sample.inflight == 4


def test_restarted_and_new_servers_begin_at_their_counts() -> None:
    demand = ScrapedDemand()
    demand.sample([pod("a", 0, done=1000)])
    sample = demand.sample([pod("a", 1, done=4), pod("b", 1, done=6)])
    assert sample is not None
    assert sample.requests == 0
    sample = demand.sample([pod("a", 2, done=9), pod("b", 2, done=7)])
    assert sample is not None
    assert sample.requests == 6


def test_demand_is_unknown_if_most_servers_are_silent_and_none_is_lost() -> None:
    demand = ScrapedDemand()
    demand.sample([pod(name, 0, done=0) for name in "abc"])
    silent = [pod(name, 1, done=None, state="unreachable") for name in "bc"]
    assert demand.sample([pod("a", 1, done=5), *silent]) is None

    sample = demand.sample([pod("a", 2, done=5), pod("b", 2, done=20), pod("c", 2, done=30)])
    assert sample is not None
    assert sample.requests == 55


def test_demand_without_a_server_is_none() -> None:
    sample = ScrapedDemand().sample([pod("a", 0, done=None, state="starting")])

    assert sample is not None
    assert (sample.requests, sample.inflight) == (0, 0)


@dataclass
class _Server:
    waiting: int = 0
    done: int = 0


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 20), st.integers(0, 20)), max_size=40))
def test_the_demand_never_exceeds_the_arrivals_and_ends_equal(steps: list[tuple[int, int, int]]) -> None:
    servers = [_Server(), _Server()]
    demand, arrived = ScrapedDemand(), 0

    def look(at: int) -> int:
        sample = demand.sample([pod(str(n), at, done=s.done, pending=s.waiting) for n, s in enumerate(servers)])
        assert sample is not None
        return sample.requests

    look(0)
    before = 0
    for at, (which, arrive, answer) in enumerate(steps, start=1):
        server = servers[which]
        arrived += arrive
        server.waiting += arrive
        answered = min(answer, server.waiting)
        server.waiting -= answered
        server.done += answered
        now = look(at)
        assert before <= now <= arrived
        before = now
    assert before == arrived


def test_long_requests_are_in_flight_at_every_look() -> None:
    # Eight at a time, 120 s each, that end every 15 s.
    demand = ScrapedDemand()
    seen = []
    for at in range(600):
        done = at // 15
        sample = demand.sample([pod("a", at, done=done, busy_us=done * 120_000_000)])
        assert sample is not None
        seen.append(sample.inflight)
    assert set(seen[300:]) == {8}


def test_canceled_requests_have_arrived() -> None:
    demand = ScrapedDemand()
    demand.sample([pod("a", 0, done=0)])
    sample = demand.sample([replace(pod("a", 1, done=10), canceled=5)])
    assert sample is not None
    assert sample.requests == 15
