"""Where GPU utilisation comes from: agents, Prometheus, or the busy time of the instances."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon.api.documents.model_overlay import Overlay
from halcyon.api.documents.observation_report import BatchStats
from halcyon.api.spec.parse import parse
from halcyon.kube import kinds
from halcyon.kube.kinds import Key
from halcyon.render.names import REVISION_LABEL
from halcyon.scaling.observations import Missing, Value
from halcyon.signals.prometheus.source import Sampled
from tests.unit.control.autoscaling.autoscaler_simulation import DIGITS, OperatorReplica, spec
from tests.unit.control.autoscaling.test_model_signals import Clock, shown, with_gpu
from tests.unit.control.scope_builders import PVC
from tests.unit.control.state.manual_caches import labelled
from tests.unit.signals.records import EPOCH, record, triton


class Sources:
    """A model of two GPU pods, and what each source tells of them: agents, Prometheus, batches."""

    def __init__(self, *, count: int = 2, **scaling: Any) -> None:
        self.world = OperatorReplica(Clock())
        self.spec = with_gpu(**scaling)
        self.world.model(replicas=count)
        self.world.specs[DIGITS] = self.spec
        address = (kinds.MODEL_DEPLOYMENT, *DIGITS)
        resource = self.world.kube.objects[address]
        self.world.store(
            self.world.kube._put(address, resource | {"status": {"replicas": count, "pods": {"total": count}}})
        )
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
        return sensed.result.reading.gpu

    def rules(self) -> Value | Missing | None:
        """What the rules are told."""
        read = self.world.sensing.by_rules(DIGITS, self.spec).reading
        assert not isinstance(read, Missing)
        return read.gpu_utilization

    def shown(self) -> tuple[float | None, str, float | None] | None:
        """(value, source, age) of what a reader is shown; None where it is nothing."""
        signals = {s.name: s for s in shown(self.world, self.spec)}
        if (signal := signals.get("gpuUtilization")) is None:
            return None
        age = None if signal.at is None else round(EPOCH + self.world.time() - signal.at)
        return signal.value, signal.source, age


def test_measurements_of_agents_come_first() -> None:
    sources = Sources()
    sources.with_prometheus(a=10, b=10)
    sources.hear(gpu=(0.5, 0.7), busy=0.2)

    assert sources.planner() == pytest.approx(120)
    assert sources.shown() == (pytest.approx(120), "agents", 1)


def test_half_of_the_ready_pods_are_enough_and_stand_for_the_rest() -> None:
    sources = Sources()
    sources.with_prometheus(a=10, b=10)
    sources.hear(gpu=(0.5, None), busy=0.2)

    assert sources.planner() == pytest.approx(100)
    shown = sources.shown()
    assert shown is not None
    assert shown[1] == "agents"


def test_prometheus_stands_in_where_agents_measure_nothing() -> None:
    sources = Sources(policy="Rules")
    sources.with_prometheus(a=90, b=60)
    sources.hear(1, busy=0.2)

    assert sources.planner() == 150
    assert sources.rules() == Value(150, 1000.0 - 20)
    assert sources.shown() == (150, "prometheus", 21)


def test_a_pod_unknown_to_prometheus_is_filled_in_as_any_other() -> None:
    sources = Sources(policy="Rules", targets={"gpuUtilization": 50})
    sources.with_prometheus(a=30)
    sources.hear(1)

    assert sources.planner() == 60
    rules_value = sources.rules()
    assert isinstance(rules_value, Value)
    # On the way down the other is taken to be at its target.
    assert rules_value.value == 80


def test_ending_pods_are_not_filled_in_after_a_scale_down() -> None:
    sources = Sources(policy="Rules", targets={"gpuUtilization": 50})
    sources.with_prometheus(a=30, b=30)
    sources.hear(1)
    sources.world.scale(DIGITS, 1)
    sources.world.have_pods(DIGITS, 1)
    sources.prometheus.pop("digits-a-1")
    sources.hear(1)

    # 80 with the ending pod at its target: two replicas again, a moment after the scale-down.
    assert sources.rules() == Value(30, 1000.0 - 20)


def test_batches_stand_in_where_nothing_measures_it() -> None:
    sources = Sources(policy="Rules")
    sources.with_prometheus()
    sources.hear(busy=0.3)

    assert sources.planner() == pytest.approx(60)
    value, source, age = sources.shown() or (None, "", None)
    assert (value, source) == (pytest.approx(60), "derived")
    assert age is not None
    assert 0 <= age <= 5


@pytest.mark.parametrize("policy", ["Planner", "Rules"])
def test_busy_shares_are_those_of_the_instances_that_serve(policy: str) -> None:
    """The spec asks for four instances, as a canary or as a rollout that is rolled back; the pods have one."""
    sources = Sources(policy=policy)
    sources.spec = parse(
        "digits",
        {
            "model": {"source": PVC},
            "runtime": {"gpu": {"count": 1}, "instancesPerGPU": 4},
            "scaling": {"maxReplicas": 4, "policy": policy},
        },
    )
    serves(sources.world, instances=1)
    sources.hear(busy=0.8)

    assert sources.planner() == pytest.approx(160)
    value, source, _ = sources.shown() or (None, "", None)
    assert (value, source) == (pytest.approx(160), "derived")
    work = sources.world.sensing.reported_work(DIGITS, sources.spec)
    assert work is not None
    assert work.busy == pytest.approx(0.8)


def test_busy_shares_of_a_canary_are_those_of_its_own_instances() -> None:
    sources = Sources(policy="Rules")
    serves(sources.world, instances=4)
    serves(sources.world, instances=1, key="77aa")
    canary = sources.world.caches.pods.get(Key("team", "digits-a-1"))
    assert canary is not None
    labels = canary["metadata"]["labels"] | {REVISION_LABEL: "77aa"}
    changed = canary | {"metadata": canary["metadata"] | {"labels": labels, "resourceVersion": "2"}}
    sources.world.caches.pods._store(Key("team", "digits-a-1"), changed)
    sources.hear(busy=0.8)

    assert sources.planner() == pytest.approx(20 + 80)


def serves(world: OperatorReplica, *, instances: int, key: str = "") -> None:
    """The pods, which have no label of a revision, are those of a stored revision with this many instances."""
    data = {
        "format": 1, "key": key, "template": {}, "model": "digits", "snapshot": "", "startupTimeoutSeconds": 600,
        "overlay": Overlay("digits", instances=instances).to_json(),
    }  # fmt: skip
    stored = labelled(kinds.CONTROLLER_REVISION, f"digits-{key}", "digits", data=data)
    stored["metadata"] |= {"resourceVersion": "1", "ownerReferences": [{"uid": "digits", "controller": True}]}
    world.caches.children[kinds.CONTROLLER_REVISION]._store(Key("team", f"digits-{key}"), stored)


def test_batches_stand_in_at_once_when_prometheus_falls_silent() -> None:
    sources = Sources()
    sources.with_prometheus(a=90, b=60)
    sources.hear(busy=0.3)
    before = sources.shown()
    sources.prometheus = {}

    assert before is not None
    assert before[1] == "prometheus"
    value, source, _ = sources.shown() or (None, "", None)
    assert (value, source) == (pytest.approx(60), "derived")
    assert sources.planner() == pytest.approx(60)


def test_instances_share_what_batches_take() -> None:
    sources = Sources()
    document = {"model": {"source": PVC}, "runtime": {"instancesPerGPU": 2, "gpu": {"count": 2}}}
    sources.spec = parse("digits", document | {"scaling": {"maxReplicas": 4}})
    sources.hear(busy=2.0)

    assert sources.planner() == pytest.approx(2 * 50)


def test_a_model_without_a_gpu_has_no_derived_utilization() -> None:
    sources = Sources()
    sources.spec = spec()
    sources.with_prometheus(a=90, b=60)
    sources.hear(busy=0.3)

    assert sources.planner() is None
    assert sources.rules() is None
    assert sources.shown() is None


def test_gpu_utilization_is_missing_if_half_the_pods_are_unknown() -> None:
    sources = Sources(count=3, policy="Rules")
    sources.with_prometheus(a=90)
    sources.hear(gpu=(None, None, None))

    assert sources.planner() is None
    assert isinstance(sources.rules(), Missing)
    assert sources.shown() == (None, "agents", None)


def test_a_deleted_model_leaves_no_state() -> None:
    sources = Sources()
    sources.hear(busy=0.3)
    assert sources.planner() is not None
    sources.world.sensing.forget(DIGITS)

    assert sources.planner() is None
