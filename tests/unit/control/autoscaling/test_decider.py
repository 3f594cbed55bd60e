"""Which policy decides, with what it remembers, and when it is asked anew."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest

from halcyon.api.documents.measured_capacity import KEY
from halcyon.api.documents.model_overlay import Overlay
from halcyon.api.spec.parse import parse
from halcyon.control.autoscaling import decider
from halcyon.control.autoscaling.batch_replicas import BatchReplicas
from halcyon.control.autoscaling.decider import Decider
from halcyon.control.autoscaling.planner_memory.entries import saved
from halcyon.control.autoscaling.planner_memory.kept_memories import KeptMemories
from halcyon.control.objects.actuator import Actuator
from halcyon.kube import kinds
from halcyon.kube.kinds import Key
from halcyon.render.names import REVISION_LABEL
from halcyon.scaling.hpa.algorithm import SYNC_INTERVAL_S
from halcyon.scaling.planner.outputs import PlannerMemory
from halcyon.scaling.planner.scale_to_zero import IdleTimeout
from halcyon.scaling.policy.batch_demand import BatchDemand
from halcyon.scaling.policy.decision import RULES_REASON, SILENT_REASON, Decision
from halcyon.scaling.schedules import in_force
from tests.unit.control.autoscaling.autoscaler_simulation import DIGITS, OperatorReplica, spec
from tests.unit.control.scope_builders import PVC
from tests.unit.control.state.manual_caches import labelled
from tests.unit.signals.records import EPOCH

WEIGHT_BYTES = 60_000
"""Models are decided on for simulated minutes."""

HPA, DIRECT = Actuator.HPA, Actuator.DIRECT


@dataclass
class Clock:
    """Stands until it is moved."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


class Model:
    """One model and its decisions; somebody else writes the counts, where the test says so."""

    def __init__(self, *, replicas: int = 2, **scaling: Any) -> None:
        self.clock = Clock()
        self.world = OperatorReplica(self.clock)
        self.world.model(replicas=replicas, **scaling)
        self.deciding = Decider(self.world.sensing)

    def decide(self, actuator: Actuator = HPA) -> Decision:
        """As the scaler would, now."""
        return self.deciding.decide(DIGITS, self.world.specs[DIGITS], actuator, self.clock.now)

    def hear(self, seconds: int, actuator: Actuator = HPA, **record: int) -> Decision:
        """A record and a decision every second; the last decision."""
        for _ in range(seconds):
            self.clock.now += 1
            self.world.speak(DIGITS, **record)
            decision = self.decide(actuator)
        return decision

    def write(self, decision: Decision) -> None:
        """The count becomes the desired one."""
        assert decision.desired is not None
        self.world.scale(DIGITS, decision.desired, by="halcyon")
        self.world.have_pods(DIGITS, decision.desired)


def taught(model: Model, **changes: Any) -> None:
    """The model's Deployment, and a measured capacity of its revision."""
    template = {
        "metadata": {"labels": {REVISION_LABEL: "5d7c"}},
        "spec": {"containers": [{"name": "triton", "image": "localhost/tritonserver:24.10"}]},
    }
    deployment = labelled(kinds.DEPLOYMENT, "digits-a", "digits", spec={"replicas": 1, "template": template})
    document = {
        "version": 1, "source": "bench", "measuredAt": "2026-11-28T03:15:00Z", "revision": "digits-5d7c",
        "image": "localhost/tritonserver:24.10", **changes,
    }  # fmt: skip
    stored = labelled(kinds.CONFIG_MAP, "digits-capacity", "digits", data={KEY: json.dumps(document)})
    for each in (deployment, stored):
        each["metadata"]["resourceVersion"] = "1"
    caches = model.world.caches
    caches.children[kinds.DEPLOYMENT]._store(Key("team", "digits-a"), deployment)
    caches.children[kinds.CONFIG_MAP]._store(Key("team", "digits-capacity"), stored)


OPEN = {"name": "open", "start": "* * * * *", "duration": "1h"}


def names(decision: Decision) -> list[str]:
    return [signal.name for signal in decision.signals]


def test_unknown_signals_are_no_reason_to_change_replicas() -> None:
    decision = Model(replicas=3).decide()

    assert (decision.policy, decision.current, decision.desired, decision.limited_by) == ("Planner", 3, 3, ("unknown",))
    assert decision.unknown == "no balancer agent has reported yet"
    assert "the replicas stay as they are" in decision.why


@pytest.mark.parametrize("policy", ["Planner", "Rules"])
def test_signals_of_a_model_without_any_report_are_missing(policy: str) -> None:
    """The alert HalcyonMetricMissing fires for each missing signal, so it must also fire if agents can't connect."""
    missing = {signal.name: signal.missing for signal in Model(policy=policy).decide(DIRECT).signals}

    assert missing["queueDepth"] == "no balancer agent has reported yet"
    assert all(missing.values())


@pytest.mark.parametrize(
    ("limits", "replicas", "desired", "reason"),
    [
        ({"minReplicas": 3}, 1, 3, "the schedule open sets at least 3"),
        ({"maxReplicas": 2}, 5, 2, "the schedule open sets at most 2"),
        ({"minReplicas": 3}, 4, 4, ""),
    ],
)
def test_schedules_apply_to_a_model_without_any_report(
    limits: dict[str, int], replicas: int, desired: int, reason: str
) -> None:
    model = Model(replicas=replicas, schedules=[OPEN | limits])
    decision = model.decide()

    assert (decision.current, decision.desired) == (replicas, desired)
    assert bool(decision.unknown) == (replicas == desired), "without a reason, the replicas are written"
    assert reason in decision.why
    model.write(decision)
    again = model.decide()
    assert (again.desired, again.unknown) == (desired, "no balancer agent has reported yet")


def test_schedules_apply_after_the_reports_of_all_agents_have_expired() -> None:
    model = Model(replicas=2, schedules=[{"name": "later", "start": "0 0 1 1 *", "duration": "1h", "minReplicas": 6}])
    model.hear(30, arrived=20)
    model.clock.now += 400
    model.world.hub._sweep(model.clock.now)
    silent = model.decide()
    model.world.specs[DIGITS] = spec(schedules=[OPEN | {"minReplicas": 6}])
    opened = model.decide()

    assert (silent.desired, bool(silent.unknown)) == (silent.current, True)
    assert (opened.desired, opened.unknown) == (6, "")
    assert "no balancer agent has reported for at least 5 minutes" in opened.why


def test_the_rules_decide_until_the_first_batch_and_then_the_planner() -> None:
    model = Model(replicas=3)
    before = model.hear(20, arrived=20, served=0, queued=40)
    model.write(before)
    again = model.hear(5, arrived=20, served=0, queued=40)
    after = model.hear(30, arrived=20)

    assert (before.policy, after.policy) == ("Planner", "Planner")
    assert (before.desired, again.desired) == (5, 5)
    assert before.why.endswith(RULES_REASON)
    assert "requestRate" not in names(before)
    assert RULES_REASON not in after.why
    assert "requestRate" in names(after)
    # The hand-over moves nothing: what runs was found right by somebody.
    assert (after.current, after.desired) == (5, 5)


def test_a_measured_capacity_lets_the_planner_decide_the_first_load() -> None:
    """A batch of 8 takes 80 ms, and 500 requests/s need five of them at once; no batch has been reported."""
    model = Model(replicas=1, maxReplicas=20)
    line = {"instances": 1, "constantMilliseconds": 80, "perRowMilliseconds": 0, "maxBatchSize": 8}
    taught(model, lines=[line])
    model.hear(20)
    decision = model.hear(3, arrived=500, served=0)

    assert RULES_REASON not in decision.why
    assert decision.desired is not None
    assert decision.desired >= 6
    assert decision.capacity is not None
    assert decision.capacity.name == "Bench"
    assert decision.capacity.rps == pytest.approx(100.0)


def test_a_measured_capacity_of_another_revision_changes_nothing() -> None:
    model = Model(replicas=1, maxReplicas=20)
    line = {"instances": 1, "constantMilliseconds": 80, "perRowMilliseconds": 0, "maxBatchSize": 8}
    taught(model, revision="digits-77aa", lines=[line])
    model.hear(20)

    assert RULES_REASON in model.hear(3, arrived=500, served=0).why


def test_a_decision_while_learning_is_revisited_as_soon_as_the_planner_says() -> None:
    model = Model()
    decision = model.hear(10, arrived=20, served=0)

    assert decision.next_decision_at == pytest.approx(EPOCH + model.clock.now + 1.0, abs=0.01)


def test_a_model_at_zero_is_the_planners_despite_unknown_capacity() -> None:
    model = Model(replicas=0, minReplicas=0)

    assert model.hear(5).desired == 0
    decision = model.hear(1, arrived=1, queued=1)
    assert (decision.current, decision.desired, decision.limited_by) == (0, 1, ("learning",))


def test_the_rules_with_an_hpa_want_no_replicas_and_show_the_signals() -> None:
    model = Model(policy="Rules")
    unheard = model.decide()
    decision = model.hear(20, arrived=20, queued=12)

    assert unheard.unknown == "queueDepth: no balancer agent has reported yet"
    assert (decision.policy, decision.desired, decision.unknown) == ("Rules", None, "")
    (queue,) = [signal for signal in decision.signals if signal.name == "queueDepth"]
    assert queue.value == pytest.approx(12)
    assert queue.at == pytest.approx(EPOCH + model.clock.now, abs=0.01)


def test_signals_for_an_hpa_equal_the_decision_of_the_rules_without_one() -> None:
    model = Model(policy="Rules", maxReplicas=50, targets={"queueDepth": 16})
    decision = model.hear(20, queued=40)
    (queue,) = [signal for signal in decision.signals if signal.name == "queueDepth"]

    assert decision.why == "queueDepth 40 at 16 per replica needs 3"
    assert queue.proposal == 3
    assert [(part.name, part.replicas) for part in decision.parts] == [("queueDepth", 3)]
    assert model.hear(16, DIRECT, queued=40).desired == 3


def test_the_rules_without_an_hpa_decide_at_the_hpas_interval() -> None:
    model = Model(policy="Rules")
    model.hear(1, DIRECT)
    assert model.hear(1, DIRECT, queued=40).desired == 2
    times = [model.hear(1, DIRECT, queued=40).at for _ in range(60)]

    assert len(set(times)) == pytest.approx(60 / SYNC_INTERVAL_S, abs=1)


def test_unmeasured_gpus_hold_no_replicas_down() -> None:
    model = Model(replicas=3, policy="Rules")
    model.world.specs[DIGITS] = parse(
        "digits",
        {
            "model": {"source": PVC},
            "runtime": {"gpu": {"count": 1}},
            "scaling": {"maxReplicas": 9, "policy": "Rules"},
        },
    )
    rising = model.hear(20, DIRECT, queued=40)
    idle = model.hear(40, DIRECT)

    assert (rising.desired, rising.unknown) == (5, "")
    assert (idle.desired, idle.limited_by) == (3, ("unknown",))
    assert "no ready pod reports nv_gpu_utilization" in idle.unknown


def test_a_decision_that_was_blind_does_not_last() -> None:
    model = Model(replicas=3, policy="Rules")
    model.hear(20, DIRECT, queued=40)
    model.clock.now += 12 + SYNC_INTERVAL_S
    blind = model.decide(DIRECT)
    assert (blind.desired, blind.limited_by) == (3, ("unknown",))

    back = model.hear(2, DIRECT, queued=40)
    assert (back.unknown, back.desired) == ("", 5)


def test_the_rules_decide_again_when_another_writer_has_changed_the_replicas() -> None:
    model = Model(replicas=3, policy="Rules")
    first = model.hear(20, DIRECT, queued=40)
    model.world.scale(DIGITS, 9)
    decision = model.hear(1, DIRECT, queued=40)

    assert first.desired == 5
    assert decision.current == 9
    assert decision.at > first.at


def test_replicas_that_could_not_be_written_use_up_no_pace() -> None:
    behavior = {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 600}]}}
    written, lost = Model(policy="Rules", behavior=behavior), Model(policy="Rules", behavior=behavior)
    for model in (written, lost):
        decision = model.hear(2, DIRECT, queued=80)
        assert decision.desired == 3
    lost.deciding.not_written(DIGITS)
    written.write(decision)

    assert lost.hear(1, DIRECT, queued=80).desired == 3
    # One was added, so the next follows ten minutes later.
    assert written.hear(590, DIRECT, queued=80).desired == 3
    assert written.hear(int(SYNC_INTERVAL_S) + 10, DIRECT, queued=80).desired == 4


def test_replicas_that_are_only_recommended_use_up_no_pace() -> None:
    behavior = {"scaleUp": {"policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}]}}
    model = Model(policy="Rules", mode="Recommend", maxReplicas=20, behavior=behavior)

    assert {model.hear(int(SYNC_INTERVAL_S), DIRECT, queued=300).desired for _ in range(9)} == {6}


@pytest.mark.parametrize(
    ("scaling", "queued", "text"),
    [
        ({"minReplicas": 0}, 0, "; the last replica stays until idleTimeout; "),
        ({"schedules": [OPEN | {"minReplicas": 3}]}, 0, "; the schedule open sets at least 3; "),
        ({"schedules": [OPEN | {"maxReplicas": 2}]}, 90, "; the schedule open sets at most 2; "),
        ({"maxReplicas": 2}, 90, "; maxReplicas is 2; "),
    ],
)
def test_limits_are_named_while_the_rules_replace_the_planner(scaling: dict[str, Any], queued: int, text: str) -> None:
    model = Model(replicas=1, **scaling)
    for _ in range(400):
        decision = model.hear(1, inflight=1, queued=queued)
        if decision.desired != decision.current:
            model.write(decision)

    assert RULES_REASON in decision.why
    assert text in decision.why


@pytest.mark.parametrize("mode", ["Recommend", "Paused"])
def test_the_rules_recommend_replicas_although_the_hpa_is_shut(mode: str) -> None:
    model = Model(policy="Rules", mode=mode, maxReplicas=20, targets={"queueDepth": 16})

    decision = model.hear(20, HPA, queued=60)

    assert (decision.policy, decision.current, decision.desired) == ("Rules", 2, 4)


def test_only_the_replicas_that_a_quota_allowed_use_up_the_pace() -> None:
    behavior = {"scaleUp": {"policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}]}}
    model = Model(policy="Rules", maxReplicas=20, behavior=behavior)
    decision = model.hear(2, DIRECT, queued=300)
    assert decision.desired == 6
    model.write(replace(decision, desired=3))

    assert model.hear(int(SYNC_INTERVAL_S), DIRECT, queued=300).desired == 6


def test_a_failed_write_without_a_ruling_changes_nothing() -> None:
    model = Model()
    model.deciding.not_written(DIGITS)

    assert model.decide().unknown


OFFICE = {"name": "office", "start": "0 5 * * *", "duration": "1h", "minReplicas": 4}
"""From 20 minutes after EPOCH on, for an hour."""


@pytest.mark.parametrize("served", [0, None], ids=["while it learns", "by the planner"])
def test_a_schedule_is_in_force_from_its_time_on(served: int | None) -> None:
    model = Model(schedules=[OFFICE])
    load: dict[str, Any] = {"arrived": 8, "served": served}
    model.clock.now = 1180.0
    quiet = model.hear(19, **load)
    opened = model.hear(2, **load)
    model.write(opened)
    kept = model.hear(30, **load)

    assert (quiet.desired, opened.desired, kept.desired) == (2, 4, 4)


def test_a_schedule_s_maximum_is_in_force_while_it_is_open() -> None:
    model = Model(replicas=6, schedules=[OFFICE | {"minReplicas": 1, "maxReplicas": 3}])
    model.clock.now = 1180.0

    assert model.hear(15, arrived=200).desired == 6
    model.hear(10, arrived=200)
    assert model.decide().desired == 3


def test_schedules_are_looked_up_once_per_window_and_per_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[float] = []

    def counted(schedules: Any, at: float) -> Any:
        looked.append(at - EPOCH)
        return in_force(schedules, at)

    monkeypatch.setattr(decider, "in_force", counted)
    model = Model(schedules=[OFFICE])
    for at in range(1000, 9000, 100):
        model.clock.now = float(at)
        model.world.speak(arrived=8)
        model.decide()
    assert looked == [1000, 1200, 4800]

    model.world.specs[DIGITS] = spec(schedules=[OFFICE | {"duration": "2h"}])
    model.hear(2, arrived=8)
    assert len(looked) == 4


def test_a_model_without_schedules_causes_no_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(decider, "in_force")

    assert Model().hear(3, arrived=8).desired == 2


def test_a_model_learnt_by_rules_does_not_go_to_zero_by_them() -> None:
    model = Model(replicas=1, minReplicas=0, idleTimeout="1h")
    for _ in range(60):
        # A request that takes long: it has left the queue, and no batch has ended.
        decision = model.hear(1, inflight=1)
        model.clock.now += 9

    assert decision.desired == 1
    # spec.scaling.minReplicas is 0.
    assert "; the last replica stays until idleTimeout; " in decision.why


def test_the_rules_pace_is_not_the_planners_even_as_its_substitute() -> None:
    model = Model(behavior={"scaleUp": {"selectPolicy": "Disabled"}})

    # The status says that the policy Planner ignores it.
    assert model.hear(20, arrived=20, served=0, queued=40).desired == 4


def test_replicas_do_not_jump_from_planner_to_rules_and_back() -> None:
    model = Model(replicas=4)
    model.hear(60, arrived=100)
    model.world.specs[DIGITS] = spec(policy="Rules")
    ruled = model.hear(30, arrived=100)
    assert (ruled.policy, ruled.desired) == ("Rules", None)
    model.world.specs[DIGITS] = spec()
    back = [model.hear(1, arrived=100) for _ in range(60)]

    assert {decision.policy for decision in back} == {"Planner"}
    assert {decision.desired for decision in back} == {4}


def test_an_old_ruling_is_not_resumed_after_the_planners_turn() -> None:
    model = Model(policy="Rules")
    model.hear(20, DIRECT, queued=40)
    model.world.specs[DIGITS] = spec()
    assert model.hear(12, arrived=20).policy == "Planner"
    model.world.specs[DIGITS] = spec(policy="Rules")
    decision = model.hear(1, DIRECT, arrived=20)

    assert decision.at == pytest.approx(EPOCH + model.clock.now, abs=0.01)


def learnt() -> PlannerMemory:
    """Of a planner that has seen batches."""
    taught = Model()
    taught.hear(10, arrived=40)
    memory = taught.deciding.memory(DIGITS)
    assert memory is not None
    assert memory.capacity.line is not None
    assert memory.capacity.seen
    return memory


def test_live_memory_is_not_overwritten_by_what_an_earlier_process_has_kept() -> None:
    model = Model()
    model.deciding.restore({})
    model.hear(3, arrived=40, served=0)
    model.deciding.restore({DIGITS: saved("digits", learnt(), at=EPOCH)})
    model.hear(3, arrived=40, served=0)

    memory = model.deciding.memory(DIGITS)
    assert memory is not None
    assert memory.capacity.line is None


def test_memories_that_can_be_read_only_later_replace_those_begun_without_them() -> None:
    model = Model()
    model.hear(3, arrived=40, served=0)
    model.deciding.restore({DIGITS: saved("digits", learnt(), at=EPOCH)})
    model.hear(3, arrived=40, served=0)

    memory = model.deciding.memory(DIGITS)
    assert memory is not None
    assert memory.capacity.line is not None


def test_a_kept_capacity_lets_the_planner_decide_at_once() -> None:
    model = Model()
    model.deciding.restore({DIGITS: saved("digits", learnt(), at=EPOCH)})
    decision = model.hear(3, arrived=40, served=0)

    assert RULES_REASON not in decision.why
    memory = model.deciding.memory(DIGITS)
    assert memory is not None
    # Counters of another process are no base for differences.
    assert memory.capacity.seen == ()
    assert model.deciding._kept._saved == {}


def test_the_memory_of_another_model_of_the_same_name_is_not_used() -> None:
    model = Model()
    model.deciding.restore({DIGITS: saved("another uid", learnt(), at=EPOCH)})

    assert model.hear(3, arrived=40, served=0).why.endswith(RULES_REASON)


def test_a_memory_of_a_node_whose_clock_is_ahead_holds_no_replicas() -> None:
    before = Model(replicas=1)
    before.world.clock.ahead_s += 86_400
    before.world.sensing.check_clocks()
    for _ in range(30):
        before.write(before.hear(1, arrived=400))
    count, memory = before.world.replicas(), before.deciding.memory(DIGITS)
    assert count > 2
    assert memory is not None
    after = Model(replicas=count)
    after.clock.now = before.clock.now
    after.deciding.restore({DIGITS: saved("digits", memory, at=before.world.clock.wall())})
    for _ in range(260):
        after.write(after.hear(1, arrived=8))

    assert after.world.replicas() < count


def test_the_planners_memory_is_shown_with_the_targets_of_the_spec() -> None:
    model = Model(replicas=3, targets={"latency": "300ms"}, schedules=[OFFICE])
    model.clock.now = 1250.0
    model_spec = model.world.specs[DIGITS]
    model.hear(20, arrived=20, served=0)
    assert model.deciding.knowledge(DIGITS, model_spec) is None
    model.hear(30, arrived=20)

    known = model.deciding.knowledge(DIGITS, model_spec)
    assert known is not None
    # Those of every day: a schedule that is open now is none of the past's.
    assert (known.objectives.latency_s, known.objectives.low, known.objectives.windows) == (0.3, 1, ())
    assert known.replica.peak_rps > 0
    model.deciding.forget(DIGITS)
    assert model.deciding.knowledge(DIGITS, model_spec) is None


def test_a_forgotten_model_leaves_no_memory() -> None:
    model = Model(schedules=[OFFICE])
    model.hear(3, arrived=8, served=0)
    held = model.deciding._models[DIGITS]
    assert held.memory is not None
    assert held.rules_decision is not None
    assert held.active is not None

    model.deciding.forget(DIGITS)

    assert not model.deciding._models
    assert model.deciding.memory(DIGITS) is None


def test_a_silence_is_reported_with_the_balancers_name() -> None:
    model = Model()
    model.hear(10, arrived=40)
    model.clock.now += 30
    decision = model.decide()

    assert (decision.desired, decision.limited_by) == (2, ("unknown",))
    assert "digits-balancer-0 reported last 30 s ago" in decision.unknown


def test_a_silent_balancer_stops_growth_for_half_a_minute() -> None:
    model = Model(replicas=2)
    model.hear(60, arrived=40)
    model.world.add_balancer(1)
    for _ in range(29):
        decision = model.hear(1, arrived=40, queued=60)
        assert (decision.desired, decision.limited_by) == (2, ("unknown",))
        assert "digits-balancer-1 has not reported yet" in decision.unknown
    decision = model.hear(3, arrived=40, queued=60)
    assert decision.desired is not None
    assert decision.desired > 2
    assert not decision.unknown
    assert SILENT_REASON in decision.text
    assert decision.capacity is not None
    assert RULES_REASON not in decision.text
    assert "digits-balancer-1 has not reported yet" in decision.text


def test_a_model_at_zero_starts_although_a_balancer_is_silent() -> None:
    model = Model(replicas=0, minReplicas=0)
    model.hear(5)
    model.world.add_balancer(1)
    silent = model.hear(60)
    assert (silent.desired, silent.limited_by) == (0, ("unknown",))

    decision = model.hear(1, arrived=1, queued=1)

    assert (decision.current, decision.desired, decision.unknown) == (0, 1, "")
    assert decision.why == (
        "1 replica: 1 request waits, and no replica runs (the load of some balancers is unknown (digits-balancer-1 has not "
        "reported yet); the limit is 10 s)"
    )
    model.write(decision)
    assert {model.hear(1).desired for _ in range(600)} == {1}, "the silent one may hold requests"


def test_a_start_while_a_balancer_is_silent_teaches_the_idle_timeout() -> None:
    """The time at zero that the start ended is known, as after a start by the planner."""
    model = Model(replicas=0, minReplicas=0)
    began = model.world.clock.wall()
    memory = PlannerMemory().with_changes(zero=IdleTimeout(left=(began - 20, 2)))
    model.deciding.restore({DIGITS: saved("digits", memory, at=began)})
    model.hear(5)
    model.world.add_balancer(1)
    model.hear(60)
    model.write(model.hear(1, arrived=1, queued=1))
    assert model.world.replicas() == 1

    known = model.deciding.memory(DIGITS)
    assert known is not None
    assert known.zero.left == (began - 20, 2)
    assert known.zero.back == (model.world.clock.wall(), 1)


@pytest.mark.parametrize("is_everything_silent", [False, True])
@pytest.mark.parametrize(
    ("replicas", "limits", "desired", "text"),
    [
        (0, {"minReplicas": 4}, 4, "sets at least 4"),
        (2, {"minReplicas": 4}, 4, "sets at least 4"),
        (6, {"maxReplicas": 3}, 3, "sets at most 3"),
    ],
)
def test_limits_of_a_schedule_apply_while_the_load_is_unknown(
    replicas: int, limits: dict[str, int], desired: int, text: str, is_everything_silent: bool
) -> None:
    model = Model(replicas=replicas, minReplicas=0, maxReplicas=8, schedules=[OPEN | limits])
    model.hear(5)
    model.world.add_balancer(1)
    if is_everything_silent:
        model.clock.now += 60
    decision = model.decide() if is_everything_silent else model.hear(1)

    # A decision with a reason in `unknown` is not written.
    assert (decision.desired, decision.unknown) == (desired, "")
    assert decision.limited_by == ("unknown", next(iter(limits)).removesuffix("Replicas"))
    assert decision.why.endswith(f"the last valid number of replicas is kept; the schedule open {text}")
    model.write(decision)
    decision = model.decide()
    assert (decision.desired, bool(decision.unknown), decision.limited_by) == (desired, True, ("unknown",))


def test_the_request_rate_is_missing_while_a_balancer_is_silent() -> None:
    model = Model()
    model.hear(30, arrived=40)
    model.clock.now += 30
    rate = model.decide().signals[0]

    assert (rate.name, rate.value, rate.at) == ("requestRate", None, None)
    assert "digits-balancer-0 reported last 30 s ago" in rate.missing


def test_replicas_are_not_removed_while_a_balancer_is_silent() -> None:
    model = Model(replicas=4)
    model.hear(60, arrived=40)
    model.world.add_balancer(1)
    for _ in range(900):
        decision = model.hear(1, arrived=0)
        assert (decision.desired, decision.limited_by) == (4, ("unknown",))


def test_growth_by_some_balancers_is_kept_when_all_report_again() -> None:
    model = Model(replicas=2)
    model.hear(60, arrived=40)
    model.world.add_balancer(1)
    decision = model.hear(40, arrived=40, queued=60)
    model.write(decision)
    model.world.caches.pods._store(Key("team", "digits-balancer-1"), None)
    back = model.hear(1, arrived=40)
    assert (back.policy, back.unknown, back.desired) == ("Planner", "", decision.desired)


@pytest.mark.parametrize("step_s", [3600.0, -3600.0, 30.0, -30.0])
def test_a_wall_clock_that_is_set_changes_no_replicas(step_s: float) -> None:
    model = Model(replicas=1)
    for _ in range(60):
        model.write(model.hear(1, arrived=200))
    count = model.world.replicas()
    assert count >= 2
    model.world.clock.ahead_s += step_s
    model.world.sensing.check_clocks()
    counts = []
    for _ in range(100):
        decision = model.hear(1, arrived=200)
        model.write(decision)
        counts.append(decision.desired)

    assert decision.at == pytest.approx(EPOCH + step_s + model.clock.now, abs=0.01)
    assert set(counts) == {count}


def test_a_clock_set_back_holds_replicas_no_longer_than_the_hold_does() -> None:
    model = Model(replicas=1)
    for _ in range(30):
        model.write(model.hear(1, arrived=400))
    count = model.world.replicas()
    model.world.clock.ahead_s -= 3600
    model.world.sensing.check_clocks()
    for _ in range(260):
        model.write(model.hear(1, arrived=8))

    assert model.world.replicas() < count


def test_a_hold_after_a_peak_survives_a_clock_set_forward() -> None:
    model = Model(replicas=1)
    for _ in range(30):
        model.write(model.hear(1, arrived=400))
    count = model.world.replicas()
    assert model.hear(30, arrived=8).desired == count
    model.world.clock.ahead_s += 3600
    model.world.sensing.check_clocks()

    assert {model.hear(1, arrived=8).desired for _ in range(25)} == {count}


def test_a_wall_clock_that_is_set_makes_no_signal_stand_still() -> None:
    model = Model(replicas=2)
    model.hear(60, arrived=2, inflight=3)
    model.hear(1, inflight=3)
    model.world.clock.ahead_s += 3600
    model.world.sensing.check_clocks()

    assert model.hear(1, inflight=3).unknown == ""


def test_a_batch_gets_replicas_after_the_users_from_what_the_planner_knows() -> None:
    model = Model(replicas=1, targets={"latency": "300ms"})
    model_spec = model.world.specs[DIGITS]
    model.hear(20, arrived=20, served=0)
    unknown = replace(model.hear(1, arrived=20, served=0), unknown="")
    demands = (BatchDemand("nightly", rows_left=1e9, max_replicas=2),)
    adding = BatchReplicas(model.deciding, lambda _: demands)
    # Without a known capacity, nobody can say how many the rows need.
    assert adding.with_batch_replicas(DIGITS, model_spec, unknown) is unknown

    decision = model.hear(30, arrived=20)
    more = adding.with_batch_replicas(DIGITS, model_spec, decision)
    assert decision.desired is not None
    assert more.desired == decision.desired + 2
    assert f"{decision.desired} for users and 2 for batch inference (nightly: " in more.why
    assert [part.name for part in more.parts][-1] == "batch"
    assert BatchReplicas(model.deciding, lambda _: ()).with_batch_replicas(DIGITS, model_spec, decision) is decision


def test_replicas_of_batches_stay_until_a_new_leader_has_read_them() -> None:
    """Only the leader reads BatchInferences, and it decides before it has read them."""
    model = Model(replicas=5, targets={"latency": "300ms"})
    model.hear(60, arrived=2)
    decision = replace(model.hear(1, arrived=2), unknown="", desired=1)
    unread = BatchReplicas(model.deciding, lambda _: None)
    kept = unread.with_batch_replicas(DIGITS, model.world.specs[DIGITS], decision)

    assert (decision.current, kept.desired) == (5, 5)
    assert kept.why.startswith("5 replicas stay until the BatchInferences have been read. For users: ")
    growing = replace(decision, desired=7)
    assert unread.with_batch_replicas(DIGITS, model.world.specs[DIGITS], growing) is growing


def test_a_lasting_decision_of_the_rules_has_the_present_replicas() -> None:
    model = Model(replicas=3, policy="Rules")
    decision = model.hear(20, DIRECT, queued=40)
    model.write(decision)
    lasting = model.hear(1, DIRECT, queued=40)

    assert (decision.current, decision.desired) == (3, 5)
    assert (lasting.at, lasting.current, lasting.desired) == (decision.at, 5, 5)


def test_a_batch_adds_no_replicas_above_a_schedule_s_maximum() -> None:
    night = OFFICE | {"minReplicas": 1, "maxReplicas": 2}
    model = Model(replicas=1, targets={"latency": "300ms"}, schedules=[night])
    adding = BatchReplicas(model.deciding, lambda _: (BatchDemand("nightly", rows_left=1e9, max_replicas=5),))
    model.clock.now = 1100.0
    before = adding.with_batch_replicas(DIGITS, model.world.specs[DIGITS], model.hear(50, arrived=20))
    model.clock.now = 1250.0
    during = adding.with_batch_replicas(DIGITS, model.world.specs[DIGITS], model.hear(50, arrived=20))

    assert before.desired is not None
    assert before.desired > 2
    assert during.desired == 2


@pytest.mark.parametrize("interrupt", ["rules", "stop"])
def test_learnt_capacity_outlasts_an_interruption_of_the_planner(interrupt: str) -> None:
    """For example, the policy Rules for a while, or an HPA of another controller."""
    model = Model()
    model.hear(60, arrived=40)
    before = model.deciding.memory(DIGITS)
    assert before is not None
    if interrupt == "rules":
        model.world.specs[DIGITS] = spec(policy="Rules")
        model.hear(5)
        model.world.specs[DIGITS] = spec()
    else:
        model.deciding.stop(DIGITS)
    assert model.deciding.memory(DIGITS) is None
    decision = model.hear(3, arrived=40, served=0)
    after = model.deciding.memory(DIGITS)

    assert RULES_REASON not in decision.why
    assert after is not None
    assert after.capacity.line == before.capacity.line


def test_learnt_memory_is_not_for_a_new_model_of_the_same_name() -> None:
    model = Model()
    model.hear(60, arrived=40)
    model.deciding.stop(DIGITS)
    assert model.deciding._kept._interrupted
    model.world.caches.resources._store(DIGITS, None)
    assert not model.deciding._kept._interrupted

    memories, memory = KeptMemories(), learnt()
    memories.keep(DIGITS, "digits", memory)
    assert memories.take(DIGITS, "another uid", EPOCH) == PlannerMemory()
    memories.keep(DIGITS, "digits", memory)
    assert memories.take(DIGITS, "digits", EPOCH).capacity.line == memory.capacity.line


def revise(model: Model, revision: str, *, pods: bool) -> None:
    """The model's Deployment has this revision, and its pods too if `pods` is true."""
    template = {"metadata": {"labels": {REVISION_LABEL: revision}}, "spec": {"containers": []}}
    deployment = labelled(kinds.DEPLOYMENT, "digits-a", "digits", spec={"replicas": 1, "template": template})
    deployment["metadata"]["resourceVersion"] = revision
    model.world.caches.children[kinds.DEPLOYMENT]._store(Key("team", "digits-a"), deployment)
    for pod in model.world.caches.pods.find("team", "digits") if pods else ():
        labels = pod["metadata"]["labels"] | {REVISION_LABEL: revision}
        changed = pod | {"metadata": pod["metadata"] | {"labels": labels, "resourceVersion": revision}}
        model.world.caches.pods._store(Key("team", pod["metadata"]["name"]), changed)


def test_a_new_revision_keeps_the_largest_batch_until_its_pods_execute_some() -> None:
    model = Model(replicas=2, targets={"latency": "300ms"})
    revise(model, "5d7c", pods=True)
    before = model.hear(200, arrived=40)
    # Pods of the new revision start, and those of the old one still serve.
    revise(model, "9f00", pods=False)
    starting = {model.hear(1, arrived=40).desired for _ in range(60)}
    revise(model, "9f00", pods=True)
    served = {model.hear(1, arrived=40).desired for _ in range(60)}

    assert before.desired is not None
    assert max(starting | served) <= before.desired


def executes(model: Model, revision: str, *, instances: int, max_batch: int) -> None:
    """The record of a revision whose pods have this many instances and this batch size."""
    overlay = Overlay("digits", max_batch_size=max_batch, instances=instances).to_json()
    data = {
        "format": 1, "key": revision, "template": {}, "model": "digits", "overlay": overlay, "snapshot": "",
        "startupTimeoutSeconds": 600,
    }  # fmt: skip
    record = labelled(kinds.CONTROLLER_REVISION, f"digits-{revision}", "digits", data=data)
    record["metadata"] |= {"resourceVersion": revision, "ownerReferences": [{"uid": "digits", "controller": True}]}
    model.world.caches.children[kinds.CONTROLLER_REVISION]._store(Key("team", f"digits-{revision}"), record)


def test_a_rolled_back_revision_keeps_its_instances_and_its_batch_size() -> None:
    model = Model(replicas=2, targets={"latency": "300ms"})
    executes(model, "5d7c", instances=1, max_batch=8)
    revise(model, "5d7c", pods=True)
    before = model.hear(200, arrived=120).desired
    # The spec asks for four instances and larger batches; no pod gets ready with them, and the revision is rolled back.
    requested = {"batching": {"maxBatchSize": 64}, "runtime": {"instancesPerGPU": 4, "gpu": {"count": 0}}}
    scaling = {"minReplicas": 1, "maxReplicas": 10, "targets": {"latency": "300ms"}}
    model.world.specs[DIGITS] = parse("digits", {"model": {"source": PVC}, "scaling": scaling} | requested)
    executes(model, "9f00", instances=4, max_batch=64)
    after = {model.hear(1, arrived=120).desired for _ in range(400)}

    assert after == {before}
    known = model.deciding.knowledge(DIGITS, model.world.specs[DIGITS])
    assert known is not None
    assert (known.objectives.instances, known.objectives.max_batch) == (1, 8)
    # Once its pods are ready, the new revision counts.
    revise(model, "9f00", pods=True)
    model.hear(2, arrived=120)
    known = model.deciding.knowledge(DIGITS, model.world.specs[DIGITS])
    assert known is not None
    assert (known.objectives.instances, known.objectives.max_batch) == (4, 64)
