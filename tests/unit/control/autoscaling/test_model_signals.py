"""What is known of a model: its records, its pods and its balancers, put together."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from halcyon.api.documents.observation_report import BatchStats
from halcyon.api.spec import Spec
from halcyon.api.spec.defaults import policy
from halcyon.api.spec.parse import parse
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Key
from halcyon.render import names
from halcyon.scaling.observations import Missing, Value
from halcyon.scaling.planner.reading import PodReading, Reading
from halcyon.scaling.policy.decision import Signal
from halcyon.signals.planner_reading import ReadingResult
from halcyon.signals.prometheus.source import Sampled
from tests.unit.control.autoscaling.autoscaler_simulation import DIGITS, OperatorReplica, pod, spec
from tests.unit.control.scope_builders import PVC
from tests.unit.signals.records import EPOCH, haproxy, record, triton

POD = Key("team", "digits-a-0")


@dataclass
class Clock:
    """Stands until it is moved."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def operator_replica(**scaling: Any) -> OperatorReplica:
    made = OperatorReplica(Clock())
    made.model(replicas=1, **scaling)
    return made


def report_balancer(made: OperatorReplica, seconds: int = 3, **balancer: int) -> None:
    assert isinstance(made.time, Clock)
    for _ in range(seconds):
        made.time.now += 1
        made.speak(DIGITS, **balancer)


def gathered(made: OperatorReplica) -> ReadingResult:
    found = made.sensing.for_planner(DIGITS, made.specs[DIGITS])
    assert found is not None
    return found.gathered


def reading(made: OperatorReplica) -> Reading:
    return gathered(made).reading


def stamp(monotonic_s: float) -> str:
    """As the API server would write it."""
    return datetime.fromtimestamp(EPOCH + monotonic_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def server(*, created: float, ready: float | None, uid: str = "u1") -> Object:
    ready_at = None if ready is None else stamp(ready)
    made = pod(POD.name, "digits", names.SERVER, ready_at=ready_at, created_at=stamp(created))
    return made | {"metadata": made["metadata"] | {"uid": uid}}


def pod_reading(made: OperatorReplica, obj: Object) -> PodReading:
    """The reading of a pod, once the cache has it like this."""
    made.caches.pods._store(POD, None)
    made.caches.pods._store(POD, obj)
    (found,) = reading(made).pods
    return found


def test_the_reading_is_none_without_reports() -> None:
    made = operator_replica()

    assert made.sensing.for_planner(DIGITS, made.specs[DIGITS]) is None
    assert made.sensing.reported(DIGITS) is None
    assert made.sensing.by_rules(DIGITS, made.specs[DIGITS]).read == Missing("no balancer's agent has reported yet")
    assert made.sensing.by_rules(DIGITS, None).read == Missing(
        "there is no ModelDeployment team/digits whose spec was accepted"
    )


def test_the_replicas_in_force_are_the_caches() -> None:
    made = operator_replica()
    made.scale(DIGITS, 7)

    assert made.caches.replicas(DIGITS) == 7
    assert made.caches.replicas(Key("team", "unknown")) == 1


def test_times_are_of_the_wall_clock_whose_steps_are_followed() -> None:
    made = operator_replica()
    report_balancer(made, arrived=10)
    at = reading(made).at
    assert at == pytest.approx(EPOCH + made.time(), abs=2)

    made.clock.ahead_s += 3600
    report_balancer(made, arrived=10)
    assert reading(made).at == pytest.approx(EPOCH + made.time(), abs=2)
    made.sensing.check_clocks()
    assert reading(made).at == pytest.approx(EPOCH + 3600 + made.time(), abs=2)


def test_a_wall_clock_that_is_slewed_a_little_changes_no_interval() -> None:
    made = operator_replica()
    epoch = made.sensing.epoch
    made.clock.ahead_s += 0.5
    made.sensing.check_clocks()

    assert made.sensing.epoch is epoch


def test_a_pods_first_ready_time_is_kept_through_later_readiness_changes() -> None:
    made = operator_replica()
    report_balancer(made)
    born = pod_reading(made, server(created=900, ready=940))
    lost = pod_reading(made, server(created=900, ready=None))
    back = pod_reading(made, server(created=900, ready=1000))

    assert [p.phase for p in (born, lost, back)] == ["ready", "broken", "ready"]
    assert {p.ready_at for p in (born, lost, back)} == {EPOCH + 940}
    assert {p.created_at for p in (born, lost, back)} == {EPOCH + 900}


def test_another_pod_of_the_same_name_has_its_own_start() -> None:
    made = operator_replica()
    report_balancer(made)
    pod_reading(made, server(created=900, ready=940))
    starting = pod_reading(made, server(created=990, ready=None, uid="u2"))

    assert (starting.phase, starting.ready_at) == ("starting", None)
    assert pod_reading(made, server(created=990, ready=1010, uid="u2")).ready_at == EPOCH + 1010


def test_a_deleted_pod_leaves_no_state() -> None:
    made = operator_replica()
    report_balancer(made)
    pod_reading(made, server(created=900, ready=940))
    made.caches.pods._store(POD, None)

    assert reading(made).pods == ()
    assert made.sensing._models[DIGITS].ready_at == {}


@pytest.mark.parametrize(("took_s", "known"), [(40.0, True), (600.0, True), (601.0, False), (86_400.0, False)])
def test_a_pod_already_ready_at_startup_is_no_measure_of_starts(took_s: float, known: bool) -> None:
    made = operator_replica()
    report_balancer(made)
    found = pod_reading(made, server(created=900 - took_s, ready=900))

    assert found.phase == "ready"
    assert found.ready_at == (EPOCH + 900 if known else None)


def test_a_balancer_whose_pod_is_gone_is_not_waited_for() -> None:
    made = operator_replica()
    other = Key("team", "digits-balancer-1")
    made.caches.pods._store(other, pod(other.name, "digits", names.BALANCER))
    for _ in range(3):
        report_balancer(made, 1, arrived=10)
        made.hub.receive(
            record(made.time(), agent=other.name, balancer=haproxy(), namespace="team", name="digits"), made.time()
        )
    assert gathered(made).unknown == ()

    report_balancer(made, 12, arrived=10)
    assert reading(made).arrived is None
    assert "digits-balancer-1 reported last 12 s ago" in gathered(made).unknown[0]

    made.caches.pods._store(other, None)
    report_balancer(made, 1, arrived=10)
    assert gathered(made).unknown == ()
    assert reading(made).arrived is not None


@pytest.mark.parametrize(("ready", "known"), [(True, False), (False, True)])
def test_a_silent_balancer_is_waited_for_once_its_pod_is_ready(ready: bool, known: bool) -> None:
    made = operator_replica()
    ready_at = stamp(990) if ready else None
    other = pod("digits-balancer-1", "digits", names.BALANCER, ready_at=ready_at, created_at=stamp(980))
    made.caches.pods._store(Key("team", "digits-balancer-1"), other)
    report_balancer(made, arrived=10)

    assert (reading(made).arrived is not None) is known


def test_balancer_pods_are_no_servers() -> None:
    made = operator_replica()
    report_balancer(made)

    assert [p.name for p in reading(made).pods] == ["digits-a-0"]


def shown(made: OperatorReplica, known: Spec) -> tuple[Signal, ...]:
    """What a reader is shown, by the policy."""
    if policy(known) == "Rules":
        return made.sensing.by_rules(DIGITS, known).signals
    sensed = made.sensing.for_planner(DIGITS, known)
    assert sensed is not None
    return sensed.signals


def with_gpu(**scaling: Any) -> Spec:
    return parse("digits", {"model": {"source": PVC}, "scaling": {"maxReplicas": 4} | scaling})


@pytest.mark.parametrize(
    ("known", "gpu", "expected"),
    [
        (spec(), None, {"queueDepth": (None, "")}),
        (spec(targets={"queueDepth": 5}), None, {"queueDepth": (5, "")}),
        (spec(policy="Rules"), None, {"queueDepth": (8, "")}),
        (with_gpu(), None, {"queueDepth": (None, "")}),
        (with_gpu(), 0.5, {"queueDepth": (None, ""), "gpuUtilization": (None, "")}),
        (
            with_gpu(targets={"gpuUtilization": 70}),
            None,
            {
                "queueDepth": (None, ""),
                "gpuUtilization": (70, "too few of the ready pods tell it, and nothing stands in"),
            },
        ),
        (
            with_gpu(policy="Rules"),
            None,
            {"queueDepth": (8, ""), "gpuUtilization": (80, "no ready pod reports nv_gpu_utilization: digits-a-0")},
        ),
        (with_gpu(policy="Rules"), 0.5, {"queueDepth": (8, ""), "gpuUtilization": (80, "")}),
    ],
)
def test_signals_are_shown_if_measured_or_requested(
    known: Spec, gpu: float | None, expected: dict[str, tuple[int | None, str]]
) -> None:
    made = operator_replica()
    for second in range(3):
        now = 1000.0 + second
        seen = triton(POD.name, at=now, gpu=gpu)
        made.hub.receive(record(now, seen, agent="digits-balancer-0", namespace="team", name="digits"), now)
    made.time.now = 1002.5  # type: ignore[attr-defined]  # a Clock

    found = shown(made, known)

    assert {s.name: (s.target, s.missing) for s in found} == expected
    assert all((s.value is None) == bool(s.missing) for s in found)
    # What a record counts is confirmed by the next one: the planner's reading is of the one before.
    at = EPOCH + (1002 if policy(known) == "Rules" else 1001)
    assert {s.at for s in found if s.value is not None} == {at}


class Sources:
    """A model of two GPU pods, and what each source tells of them: agents, Prometheus, batches."""

    def __init__(self, *, count: int = 2, **scaling: Any) -> None:
        self.world = OperatorReplica(Clock())
        self.spec = with_gpu(**scaling)
        self.world.model(replicas=count)
        self.world.specs[DIGITS] = self.spec
        where = (kinds.MODEL_DEPLOYMENT, *DIGITS)
        there = self.world.kube.objects[where]
        self.world.store(self.world.kube._put(where, there | {"status": {"replicas": {"total": count}}}))
        self.prometheus: dict[str, Sampled] = {}

    def with_prometheus(self, **percent: float) -> None:
        """A site with one, that tells this of the pods `a` and `b`."""
        at = self.world.time() - 20
        pods = {"a": "digits-a-0", "b": "digits-a-1"}
        self.prometheus = {pods[pod]: Sampled(value, at, "prometheus", "X") for pod, value in percent.items()}
        self.world.sensing.sampled = self._sample

    def _sample(self, namespace: str, pod: str) -> Sampled | None:
        assert namespace == "team"
        return self.prometheus.get(pod)

    def hear(
        self, seconds: int = 12, *, gpu: tuple[float | None, ...] = (None, None), busy: float | None = None
    ) -> None:
        """A record each second, and after each the reading that a decision would make; `busy`: share of the time in batches."""
        assert isinstance(self.world.time, Clock)
        for _ in range(seconds):
            self.world.time.now += 1
            now = self.world.time()
            read = int(now) // 5 * 5
            ran = None if busy is None else BatchStats(EPOCH + read, ((4, read, int(read * busy * 1e6)),))
            seen = [
                triton(f"digits-a-{n}", at=now, gpu=own, batches=ran, executions=int(now)) for n, own in enumerate(gpu)
            ]
            self.world.hub.receive(record(now, *seen, agent="digits-balancer-0", namespace="team", name="digits"), now)
            self.planner()

    def planner(self) -> float | None:
        """What the planner is told."""
        sensed = self.world.sensing.for_planner(DIGITS, self.spec)
        assert sensed is not None
        return sensed.gathered.reading.gpu

    def rules(self) -> Value | Missing | None:
        """What the rules are told."""
        read = self.world.sensing.by_rules(DIGITS, self.spec).read
        assert not isinstance(read, Missing)
        return read.gpu_utilization

    def shown(self) -> tuple[float | None, str, float | None] | None:
        """(value, source, age) of what a reader is shown; None where it is nothing."""
        signals = {s.name: s for s in shown(self.world, self.spec)}
        if (found := signals.get("gpuUtilization")) is None:
            return None
        age = None if found.at is None else round(EPOCH + self.world.time() - found.at)
        return found.value, found.source, age


def test_measurements_of_agents_come_first() -> None:
    made = Sources()
    made.with_prometheus(a=10, b=10)
    made.hear(gpu=(0.5, 0.7), busy=0.2)

    assert made.planner() == pytest.approx(120)
    assert made.shown() == (pytest.approx(120), "agents", 1)


def test_half_of_the_ready_pods_are_enough_and_stand_for_the_rest() -> None:
    made = Sources()
    made.with_prometheus(a=10, b=10)
    made.hear(gpu=(0.5, None), busy=0.2)

    assert made.planner() == pytest.approx(100)
    shown = made.shown()
    assert shown is not None
    assert shown[1] == "agents"


def test_prometheus_stands_in_where_agents_measure_nothing() -> None:
    made = Sources(policy="Rules")
    made.with_prometheus(a=90, b=60)
    made.hear(1, busy=0.2)

    assert made.planner() == 150
    assert made.rules() == Value(150, 1000.0 - 20)
    assert made.shown() == (150, "prometheus", 21)


def test_a_pod_unknown_to_prometheus_is_filled_in_as_any_other() -> None:
    made = Sources(policy="Rules", targets={"gpuUtilization": 50})
    made.with_prometheus(a=30)
    made.hear(1)

    assert made.planner() == 60
    rules_told = made.rules()
    assert isinstance(rules_told, Value)
    # On the way down the other is taken to be at its target.
    assert rules_told.value == 80


def test_batches_stand_in_where_nothing_measures_it() -> None:
    made = Sources(policy="Rules")
    made.with_prometheus()
    made.hear(busy=0.3)

    assert made.planner() == pytest.approx(60)
    value, source, age = made.shown() or (None, "", None)
    assert (value, source) == (pytest.approx(60), "derived")
    assert age is not None
    assert 0 <= age <= 5


def test_batches_stand_in_at_once_when_prometheus_falls_silent() -> None:
    made = Sources()
    made.with_prometheus(a=90, b=60)
    made.hear(busy=0.3)
    before = made.shown()
    made.prometheus = {}

    assert before is not None
    assert before[1] == "prometheus"
    value, source, _ = made.shown() or (None, "", None)
    assert (value, source) == (pytest.approx(60), "derived")
    assert made.planner() == pytest.approx(60)


def test_instances_share_what_batches_take() -> None:
    made = Sources()
    document = {"model": {"source": PVC}, "runtime": {"instancesPerGPU": 2, "gpu": {"count": 2}}}
    made.spec = parse("digits", document | {"scaling": {"maxReplicas": 4}})
    made.hear(busy=2.0)

    assert made.planner() == pytest.approx(2 * 50)


def test_a_model_without_a_gpu_has_no_derived_utilization() -> None:
    made = Sources()
    made.spec = spec()
    made.with_prometheus(a=90, b=60)
    made.hear(busy=0.3)

    assert made.planner() is None
    assert made.rules() is None
    assert made.shown() is None


def test_gpu_utilization_is_missing_if_half_the_pods_are_unknown() -> None:
    made = Sources(count=3, policy="Rules")
    made.with_prometheus(a=90)
    made.hear(gpu=(None, None, None))

    assert made.planner() is None
    assert isinstance(made.rules(), Missing)
    assert made.shown() == (None, "agents", None)


def test_a_deleted_model_leaves_no_state() -> None:
    made = Sources()
    made.hear(busy=0.3)
    assert made.planner() is not None
    made.world.sensing.forget(DIGITS)

    assert made.planner() is None


def test_signals_of_an_unreported_model_are_missing_with_the_reason() -> None:
    made = operator_replica(policy="Rules", targets={"queueDepth": 5})

    (queue,) = made.sensing.by_rules(DIGITS, made.specs[DIGITS]).signals

    assert (queue.name, queue.value, queue.target, queue.missing) == (
        "queueDepth",
        None,
        5,
        "no balancer's agent has reported yet",
    )
