"""The reading of each record's decision equals the plain one of the same observation, whatever agents and Kubernetes say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.documents.observation_report import BatchStats
from halcyon.scaling.observations import mean_batch
from halcyon.scaling.planner.reading import PodPhase, PodReading
from halcyon.signals.clock import WallClock
from halcyon.signals.observation_store import ObservationStore
from halcyon.signals.planner_reading import OBSERVATION_WINDOW_S, SignalMemory, reading
from tests.unit.signals.plain_reading import plain_reading
from tests.unit.signals.records import EPOCH, haproxy, record, triton

PODS = ("m-a-0", "m-a-1", "m-b-0")
SHOWN_S = 15.0


@dataclass(frozen=True)
class Step:
    """One record, and what Kubernetes says when it is read."""

    pause_s: float
    agent: str
    more: int
    queued: int | None
    pods: tuple[tuple[str, str, int | None, float | None, int, float], ...]
    """(name, state, pending, gpu, requests more, age) of each that the agent sees."""
    listed: tuple[tuple[str, PodPhase], ...]
    balancers: frozenset[str] | None
    revision: str


pods = st.tuples(
    st.sampled_from(PODS),
    st.sampled_from(["ready", "ready", "starting", "maintenance", "unreachable"]),
    st.none() | st.integers(0, 9),
    st.none() | st.floats(0, 1),
    st.integers(-400, 400),
    st.sampled_from([0.0, 0.4, 3.0]),
)
steps = st.builds(
    Step,
    pause_s=st.sampled_from([0.0, 0.3, 1.0, 1.0, 2.5, 5.0, 10.0, 12.0]),
    agent=st.sampled_from(["b-0", "b-1", "b-2"]),
    more=st.integers(-50, 500),
    queued=st.none() | st.integers(0, 30),
    pods=st.lists(pods, max_size=3, unique_by=lambda pod: pod[0]).map(tuple),
    listed=st.lists(
        st.tuples(st.sampled_from(PODS), st.sampled_from(["ready", "ready", "starting", "draining"])),
        max_size=3,
        unique_by=lambda pod: pod[0],
    ).map(tuple),
    balancers=st.none() | st.frozensets(st.sampled_from(["b-0", "b-1", "b-2"])),
    revision=st.sampled_from(["", "a", "a", "b"]),
)


class Speakers:
    """Agents that say what the steps have them say; counters are theirs, and begin anew where they would fall below 0."""

    def __init__(self) -> None:
        self.requests: dict[str, int] = {}
        self.served: dict[str, int] = {}

    def say(self, hub: ObservationStore, step: Step, now: float) -> None:
        self.requests[step.agent] = max(self.requests.get(step.agent, 100) + step.more, 0)
        seen = []
        for name, state, pending, gpu, more, age in step.pods:
            served = self.served[name] = max(self.served.get(name, 0) + more, 0)
            ran = BatchStats(EPOCH + now - age, ((1, served, 20 * served), (8, served // 8, 90 * served)))
            counters = {"rows": 2 * served, "executions": served // 2, "queue_us": 1000 * served}
            seen.append(
                triton(
                    name,
                    state,
                    at=now - age,
                    pending=pending,
                    gpu=gpu,
                    succeeded=served if more else None,
                    batches=ran if more >= 0 else None,
                    **counters,
                )
            )
        sent = record(
            now, *seen, agent=step.agent, balancer=haproxy(step.queued or 0, requests=self.requests[step.agent])
        )
        hub.receive(sent if step.queued is not None else replace(sent, balancer=None), now)


@given(st.lists(steps, min_size=1, max_size=25), st.sampled_from([0.0, 0.2, 4.0]))
def test_the_quick_reading_is_the_plain_one(history: list[Step], later_s: float) -> None:
    hub, speakers, epoch = ObservationStore(), Speakers(), WallClock(EPOCH)
    quick, plain, now = SignalMemory(), SignalMemory(), 50.0
    for step in history:
        now += step.pause_s
        speakers.say(hub, step, now)
        now += later_s
        listed = tuple(PodReading(name, phase, EPOCH, EPOCH + 9) for name, phase in step.listed)
        revision_pods = None if not step.revision else {name for name in PODS if step.revision in name}
        observation, picture = hub.observe("ns", "m", now, window_s=OBSERVATION_WINDOW_S), hub.snapshot("ns", "m", now)
        assert observation is not None
        assert picture is not None
        common: dict[str, Any] = {
            "replicas": 2,
            "pods": listed,
            "epoch": epoch,
            "balancers": step.balancers,
            "revision": step.revision,
            "revision_pods": revision_pods,
        }
        result = reading(picture, memory=quick, **common)
        expected = plain_reading(observation, memory=plain, **common)
        assert result.reading == expected.reading
        assert result.unknown == expected.unknown
        quick, plain = result.memory, expected.memory
        assert quick.batches == plain.batches
        assert (quick.arrived, quick.counted_at, quick.shape) == (plain.arrived, plain.counted_at, plain.shape)
        longer = hub.observe("ns", "m", now, window_s=SHOWN_S + 5)
        assert longer is not None
        assert hub.mean_batch("ns", "m", now, SHOWN_S) == mean_batch(longer, SHOWN_S)
