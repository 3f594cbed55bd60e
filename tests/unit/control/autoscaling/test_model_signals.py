"""What is known of a model: its records, its pods and its balancers, put together."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from halcyon.api.spec import Spec
from halcyon.api.spec.defaults import policy
from halcyon.api.spec.parse import parse
from halcyon.kube.client import Object
from halcyon.kube.kinds import Key
from halcyon.render import names
from halcyon.scaling.observations import Missing
from halcyon.scaling.planner.reading import PodReading, Reading
from halcyon.scaling.policy.decision import Signal
from halcyon.signals.planner_reading import ReadingResult
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
    world = OperatorReplica(Clock())
    world.model(replicas=1, **scaling)
    return world


def report_balancer(world: OperatorReplica, seconds: int = 3, **balancer: int) -> None:
    assert isinstance(world.time, Clock)
    for _ in range(seconds):
        world.time.now += 1
        world.speak(DIGITS, **balancer)


def gathered(world: OperatorReplica) -> ReadingResult:
    sensed = world.sensing.for_planner(DIGITS, world.specs[DIGITS])
    assert sensed is not None
    return sensed.result


def reading(world: OperatorReplica) -> Reading:
    return gathered(world).reading


def stamp(monotonic_s: float) -> str:
    """As the API server would write it."""
    return datetime.fromtimestamp(EPOCH + monotonic_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def server(*, created: float, ready: float | None, uid: str = "u1") -> Object:
    ready_at = None if ready is None else stamp(ready)
    document = pod(POD.name, "digits", names.SERVER, ready_at=ready_at, created_at=stamp(created))
    return document | {"metadata": document["metadata"] | {"uid": uid}}


def pod_reading(world: OperatorReplica, obj: Object) -> PodReading:
    """The reading of a pod, once the cache has it like this."""
    world.caches.pods._store(POD, None)
    world.caches.pods._store(POD, obj)
    (server_reading,) = reading(world).pods
    return server_reading


def test_the_reading_is_none_without_reports() -> None:
    world = operator_replica()

    assert world.sensing.for_planner(DIGITS, world.specs[DIGITS]) is None
    assert world.sensing.reported(DIGITS) is None
    assert world.sensing.by_rules(DIGITS, world.specs[DIGITS]).reading == Missing("no balancer agent has reported yet")
    assert world.sensing.by_rules(DIGITS, None).reading == Missing(
        "there is no ModelDeployment team/digits whose spec was accepted"
    )


def test_the_replicas_in_force_are_the_caches() -> None:
    world = operator_replica()
    world.scale(DIGITS, 7)

    assert world.caches.replicas(DIGITS) == 7
    assert world.caches.replicas(Key("team", "unknown")) == 1


def test_times_are_of_the_wall_clock_whose_steps_are_followed() -> None:
    world = operator_replica()
    report_balancer(world, arrived=10)
    at = reading(world).at
    assert at == pytest.approx(EPOCH + world.time(), abs=2)

    world.clock.ahead_s += 3600
    report_balancer(world, arrived=10)
    assert reading(world).at == pytest.approx(EPOCH + world.time(), abs=2)
    world.sensing.check_clocks()
    assert reading(world).at == pytest.approx(EPOCH + 3600 + world.time(), abs=2)


def test_a_wall_clock_that_is_slewed_a_little_changes_no_interval() -> None:
    world = operator_replica()
    epoch = world.sensing.epoch
    world.clock.ahead_s += 0.5
    world.sensing.check_clocks()

    assert world.sensing.epoch is epoch


def test_a_pods_first_ready_time_is_kept_through_later_readiness_changes() -> None:
    world = operator_replica()
    report_balancer(world)
    born = pod_reading(world, server(created=900, ready=940))
    lost = pod_reading(world, server(created=900, ready=None))
    back = pod_reading(world, server(created=900, ready=1000))

    assert [p.phase for p in (born, lost, back)] == ["ready", "broken", "ready"]
    assert {p.ready_at for p in (born, lost, back)} == {EPOCH + 940}
    assert {p.created_at for p in (born, lost, back)} == {EPOCH + 900}


def test_another_pod_of_the_same_name_has_its_own_start() -> None:
    world = operator_replica()
    report_balancer(world)
    pod_reading(world, server(created=900, ready=940))
    starting = pod_reading(world, server(created=990, ready=None, uid="u2"))

    assert (starting.phase, starting.ready_at) == ("starting", None)
    assert pod_reading(world, server(created=990, ready=1010, uid="u2")).ready_at == EPOCH + 1010


def test_a_deleted_pod_leaves_no_state() -> None:
    world = operator_replica()
    report_balancer(world)
    pod_reading(world, server(created=900, ready=940))
    world.caches.pods._store(POD, None)

    assert reading(world).pods == ()
    assert world.sensing._models[DIGITS].pods.ready_at == {}


@pytest.mark.parametrize(("took_s", "known"), [(40.0, True), (600.0, True), (601.0, False), (86_400.0, False)])
def test_a_pod_already_ready_at_startup_is_no_measure_of_starts(took_s: float, known: bool) -> None:
    world = operator_replica()
    report_balancer(world)
    server_reading = pod_reading(world, server(created=900 - took_s, ready=900))

    assert server_reading.phase == "ready"
    assert server_reading.ready_at == (EPOCH + 900 if known else None)


def test_a_balancer_whose_pod_is_gone_is_not_waited_for() -> None:
    world = operator_replica()
    other = Key("team", "digits-balancer-1")
    world.caches.pods._store(other, pod(other.name, "digits", names.BALANCER))
    for _ in range(3):
        report_balancer(world, 1, arrived=10)
        world.hub.receive(
            record(world.time(), agent=other.name, balancer=haproxy(), namespace="team", name="digits"), world.time()
        )
    assert gathered(world).unknown == ()

    report_balancer(world, 12, arrived=10)
    assert reading(world).arrived is None
    assert "digits-balancer-1 reported last 12 s ago" in gathered(world).unknown[0]

    world.caches.pods._store(other, None)
    report_balancer(world, 1, arrived=10)
    assert gathered(world).unknown == ()
    assert reading(world).arrived is not None


@pytest.mark.parametrize(("ready", "known"), [(True, False), (False, True)])
def test_a_silent_balancer_is_waited_for_once_its_pod_is_ready(ready: bool, known: bool) -> None:
    world = operator_replica()
    ready_at = stamp(990) if ready else None
    other = pod("digits-balancer-1", "digits", names.BALANCER, ready_at=ready_at, created_at=stamp(980))
    world.caches.pods._store(Key("team", "digits-balancer-1"), other)
    report_balancer(world, arrived=10)

    assert (reading(world).arrived is not None) is known


def test_balancer_pods_are_no_servers() -> None:
    world = operator_replica()
    report_balancer(world)

    assert [p.name for p in reading(world).pods] == ["digits-a-0"]


def shown(world: OperatorReplica, known: Spec) -> tuple[Signal, ...]:
    """What a reader is shown, by the policy."""
    if policy(known) == "Rules":
        return world.sensing.by_rules(DIGITS, known).signals
    sensed = world.sensing.for_planner(DIGITS, known)
    assert sensed is not None
    return sensed.signals


def with_gpu(**scaling: Any) -> Spec:
    return parse(
        "digits", {"model": {"source": PVC}, "runtime": {"gpu": {"count": 1}}, "scaling": {"maxReplicas": 4} | scaling}
    )


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
                "gpuUtilization": (70, "too few ready pods report the GPU utilisation, and no other source has it"),
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
    world = operator_replica()
    for second in range(3):
        now = 1000.0 + second
        seen = triton(POD.name, at=now, gpu=gpu)
        world.hub.receive(record(now, seen, agent="digits-balancer-0", namespace="team", name="digits"), now)
    world.time.now = 1002.5  # type: ignore[attr-defined]  # a Clock

    signals = shown(world, known)

    assert {s.name: (s.target, s.missing) for s in signals} == expected
    assert all((s.value is None) == bool(s.missing) for s in signals)
    # What a record counts is confirmed by the next one: the planner's reading is of the one before.
    at = EPOCH + (1002 if policy(known) == "Rules" else 1001)
    assert {s.at for s in signals if s.value is not None} == {at}


def test_signals_of_an_unreported_model_are_missing_with_the_reason() -> None:
    world = operator_replica(policy="Rules", targets={"queueDepth": 5})

    (queue,) = world.sensing.by_rules(DIGITS, world.specs[DIGITS]).signals

    assert (queue.name, queue.value, queue.target, queue.missing) == (
        "queueDepth",
        None,
        5,
        "no balancer agent has reported yet",
    )


def test_a_standby_keeps_no_state_of_a_deleted_model_without_scaling() -> None:
    world = OperatorReplica(Clock(), leads=False)
    key = world.model(actuator=None)
    document = {"model": {"source": PVC}, "runtime": {"gpu": {"count": 1}}}
    world.specs[key] = model_spec = parse("digits", document)
    world.speak(arrived=20)
    world.sensing.reported_work(key, model_spec)
    assert key in world.sensing._utilization._busy

    world.delete(key)

    assert key not in world.sensing._utilization._busy
