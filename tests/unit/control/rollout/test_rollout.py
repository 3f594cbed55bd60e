"""Rollouts, decided: truth tables on views made by hand, and whole rollouts on a controller of a few lines (`rolling`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from halcyon.api.conditions import Reason
from halcyon.control.desired import plan
from halcyon.control.rollout.canary_progress import PROMOTE
from halcyon.control.rollout.observed import REPORTS_TIMEOUT_S
from halcyon.control.rollout.rollout_plan import RolloutPhase, RolloutPlan
from halcyon.control.rollout.rollout_record import RolloutRecord, RolloutResult
from halcyon.control.state.scope import PublishedScaling, Signals
from halcyon.control.status import status
from halcyon.render import names
from halcyon.render.revision import Revision
from tests.drawn import draws
from tests.unit.control.rollout.deployment_simulation import START, Cluster, Server, served, without_memory
from tests.unit.control.status import kstatus

WEIGHT_BYTES = 110_000
"""Rollouts run in many orders of events."""

OTHER = {"batching": {"maxBatchSize": 2}}
THIRD = {"batching": {"maxBatchSize": 3}}
DEADLINE_S = 660.0
"""startupTimeout's default and a minute."""


def decided(cluster: Cluster) -> RolloutPlan:
    rollout = cluster.operate().rollout
    assert rollout is not None
    return rollout


def under_way(*, room: int = 2, count: int = 2, **rollout: Any) -> tuple[Cluster, str]:
    """A rollout whose first step is done: the pod of the new revision has come, and isn't ready."""
    cluster = served(room=room, count=count, **rollout)
    requested = cluster.key(**OTHER)
    cluster.bad.add(requested)
    for act in (cluster.operate, cluster.control, cluster.control, cluster.schedule, cluster.start):
        act()
    return cluster, requested


def status_of(cluster: Cluster, signals: Signals | None = None) -> dict[str, Any]:
    """The status."""
    seen = cluster.look()
    seen = type(seen)(**{**vars(seen), "signals": signals})
    return dict(status.make(seen, plan.make(seen), now="2026-01-02T03:04:05Z"))


def condition(model_status: dict[str, Any], kind: str) -> tuple[str, str]:
    return next(((c["reason"], c["message"]) for c in model_status["conditions"] if c["type"] == kind), ("", ""))


# What gives way to what

STRATEGIES = st.sampled_from(["Auto", "Surge", "Replace"])


@example(
    strategy="Replace", count=2, spare=0, loads=True, turns=["operate", "control", "wait", "wait", "wait", "control"]
)
@example(strategy="Auto", count=1, spare=1, loads=False, turns=["operate", "control", "wait"])
@given(
    strategy=STRATEGIES,
    count=st.integers(1, 5),
    spare=st.integers(0, 2),
    loads=st.booleans(),
    turns=st.lists(st.sampled_from(["operate", "control", "schedule", "start", "wait"]), max_size=40),
)
@draws(1.5)
def test_no_more_than_the_strategy_allows_goes_in_any_order_of_events(
    strategy: str, count: int, spare: int, loads: bool, turns: list[str]
) -> None:
    cluster = served(room=count + spare, count=count, strategy=strategy, surgeTimeout="1m")
    first, requested = cluster.applied[-1], cluster.key(**OTHER)
    if not loads:
        cluster.bad.add(requested)
    least = count if strategy == "Surge" or (strategy == "Auto" and (spare or count == 1)) else count - 1

    def act(turn: str) -> None:
        if turn == "wait":
            # Scheduler and kubelet don't leave a pod alone for a minute: else it had no room, or didn't load.
            cluster.schedule()
            cluster.start()
            cluster.now += 60
        else:
            getattr(cluster, turn)()
        assert cluster.ready >= least

    for turn in [*turns, *(["operate", "control", "schedule", "start", "wait"] * 24)]:
        act(turn)
    rollout = decided(cluster)
    stuck = not spare and (strategy == "Surge" or (strategy == "Auto" and count == 1))
    if stuck:
        assert (rollout.phase, cluster.ready) == (RolloutPhase.BLOCKED, count)
    elif loads:
        assert (rollout.phase, cluster.applied) == (RolloutPhase.COMPLETE, [first, requested])
        assert {s.revision for s in cluster.servers if s.ready} == {requested}
    else:
        # Back, with every pod, and never tried again.
        assert (rollout.phase, cluster.applied) == (RolloutPhase.ROLLED_BACK, [first, requested, first])
        assert [s.revision for s in cluster.servers if s.ready] == [first] * count


def test_auto_surges_until_capacity_is_missing_for_surge_wait() -> None:
    cluster, _ = under_way(surgeTimeout="30s")

    assert decided(cluster).pace.strategy == "Surge"
    assert decided(cluster).requeue_s == 30
    cluster.now += 30
    rollout = decided(cluster)
    assert (rollout.pace.strategy, rollout.pace.max_surge, rollout.pace.max_unavailable) == ("Replace", 0, 1)
    assert rollout.pace.why == (
        "no capacity for an additional pod was available for 30s: pod p3 needs 1 more nvidia.com/gpu: 0/1 nodes are available: "
        "1 Insufficient nvidia.com/gpu"
    )


def test_auto_that_replaces_continues_when_capacity_returns() -> None:
    cluster, _ = under_way(surgeTimeout="30s")
    cluster.now += 30
    cluster.operate()
    cluster.room = 9
    cluster.schedule()

    assert decided(cluster).pace.strategy == "Replace"


def test_a_change_to_surge_keeps_the_pods_from_then_on() -> None:
    cluster, _ = under_way(surgeTimeout="30s")
    cluster.now += 30
    cluster.operate()
    cluster.spec["rollout"] = {"strategy": "Surge", "surgeTimeout": "30s"}

    assert decided(cluster).pace.strategy == "Surge"
    assert not decided(cluster).record.replacing


def test_a_first_revision_without_capacity_replaces_nothing() -> None:
    cluster = Cluster({**served(room=1, count=1).spec}, room=0)
    cluster.settle(rounds=8)

    assert decided(cluster).pace.strategy == "Surge"
    assert decided(cluster).phase is RolloutPhase.PROGRESSING


@pytest.mark.parametrize("count", [1, 3, 5])
def test_a_change_of_replicas_is_no_rollout(count: int) -> None:
    cluster = served(room=5, count=3)
    cluster.spec["replicas"] = count

    seen = [decided(cluster).phase]
    for act in (cluster.operate, cluster.control, cluster.schedule, cluster.start) * 3:
        act()
        seen.append(decided(cluster).phase)

    assert set(seen) == {RolloutPhase.COMPLETE}


def test_a_change_of_replicas_after_a_rollback_is_no_rollout() -> None:
    cluster, _ = under_way(room=3)
    cluster.settle(rounds=60)
    assert decided(cluster).phase is RolloutPhase.ROLLED_BACK
    cluster.spec["replicas"] = 3

    seen = [decided(cluster).phase]
    for act in (cluster.operate, cluster.control, cluster.schedule, cluster.start) * 3:
        act()
        seen.append(decided(cluster).phase)

    assert set(seen) == {RolloutPhase.ROLLED_BACK}


def pressed(*, for_s: float) -> Cluster:
    """Five are wanted and three have room, for so long; then another revision is asked for."""
    cluster = served(room=3, count=3)
    cluster.spec["replicas"] = 5
    for act in (cluster.operate, cluster.control, cluster.schedule):
        act()
    cluster.now += for_s
    cluster.spec["rollout"] = {"strategy": "Replace"}
    cluster.key(**OTHER)
    return cluster


def test_pods_that_never_had_capacity_do_not_count_as_evicted() -> None:
    cluster = pressed(for_s=300)

    assert decided(cluster).pace.max_unavailable == 3
    cluster.spec["replicas"] = 6
    assert decided(cluster).pace.max_unavailable == 4


def test_pods_that_wait_for_others_to_end_count_as_evicted() -> None:
    assert decided(pressed(for_s=30)).pace.max_unavailable == 1


# When it has failed


@pytest.mark.parametrize(
    ("strategy", "room", "wait_s", "phase"),
    [
        ("Surge", 3, DEADLINE_S - 1, RolloutPhase.PROGRESSING),
        ("Surge", 3, DEADLINE_S, RolloutPhase.ROLLING_BACK),
        ("Auto", 3, DEADLINE_S, RolloutPhase.ROLLING_BACK),
        ("Replace", 2, DEADLINE_S - 1, RolloutPhase.PROGRESSING),
        ("Replace", 2, DEADLINE_S, RolloutPhase.ROLLING_BACK),
        ("Surge", 2, 10 * DEADLINE_S, RolloutPhase.BLOCKED),
    ],
)
def test_a_rollout_fails_past_the_deadline_unless_only_capacity_is_missing(
    strategy: str, room: int, wait_s: float, phase: RolloutPhase
) -> None:
    cluster, _ = under_way(room=room, strategy=strategy)
    cluster.now += wait_s

    assert decided(cluster).phase is phase


def test_the_deployment_s_own_clock_counts_where_pods_come_and_go() -> None:
    cluster, requested = under_way(room=3)
    cluster.now += DEADLINE_S
    cluster.servers = [s for s in cluster.servers if s.revision != requested] + [
        Server("new", requested, cluster.now, scheduled=True)
    ]
    assert decided(cluster).phase is RolloutPhase.PROGRESSING
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    deployment = next(o for (_, name), o in cluster.children.items() if name == "digits-a")
    deployment["status"] = {**deployment["status"], "conditions": [late]}

    # It may not have heard of the new pod yet.
    assert (decided(cluster).phase, decided(cluster).requeue_s) == (RolloutPhase.PROGRESSING, REPORTS_TIMEOUT_S)
    cluster.now += REPORTS_TIMEOUT_S
    assert decided(cluster).phase is RolloutPhase.ROLLING_BACK


@pytest.mark.parametrize("strategy", ["Surge", "Canary", "Auto"])
@pytest.mark.parametrize("refused", [False, True])
def test_the_deadline_begins_when_capacity_is_there(strategy: str, *, refused: bool) -> None:
    cluster = served(room=2, count=2, strategy=strategy, surgeTimeout="3h")
    requested = cluster.key(**OTHER)
    cluster.bad.add(requested)
    for act in (cluster.operate, cluster.control, cluster.control, cluster.schedule):
        act()
    cluster.now += 10 * DEADLINE_S
    [server] = [s for s in cluster.servers if s.revision == requested]
    if refused:  # by a quota: there was no pod, and now there is one
        server.created = cluster.now
    else:
        assert decided(cluster).phase is not RolloutPhase.ROLLING_BACK
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    deployment = next(o for (_, name), o in cluster.children.items() if name == f"digits-{server.slot}")
    deployment["status"] = {**deployment["status"], "conditions": [late]}
    cluster.room = 3
    cluster.schedule()

    assert decided(cluster).phase is RolloutPhase.PROGRESSING
    assert refused or condition(status_of(cluster), "Stalled") == ("", "")
    if refused:
        deployment["status"]["conditions"] = []  # its controller has heard of the pod
    cluster.now += DEADLINE_S - 1
    assert decided(cluster).phase is RolloutPhase.PROGRESSING
    cluster.now += 1
    assert decided(cluster).phase is RolloutPhase.ROLLING_BACK


def test_a_deadline_of_the_rollout_before_is_none_of_this_one() -> None:
    cluster, _ = under_way(room=3)
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    deployment = next(o for (_, name), o in cluster.children.items() if name == "digits-a")
    deployment["status"] = {**deployment["status"], "conditions": [late]}

    assert decided(cluster).phase is RolloutPhase.PROGRESSING


def test_a_revision_that_cannot_load_fails_at_once_after_an_eviction() -> None:
    cluster, requested = under_way(strategy="Replace")
    (server,) = (s for s in cluster.servers if s.revision == requested)
    signals = Signals(load_errors={server.name: "Internal: the weights are for another model"})
    seen = cluster.look()
    rollout = plan.make(type(seen)(**{**vars(seen), "signals": signals})).rollout

    assert rollout is not None
    assert rollout.phase is RolloutPhase.ROLLING_BACK
    assert rollout.record.reason == Reason.LOAD_FAILED
    assert rollout.record.message == "Internal: the weights are for another model"


def test_a_pod_that_went_for_nothing_comes_back() -> None:
    cluster = served(room=2, count=2, strategy="Replace")
    cluster.key(**OTHER)
    cluster.operate()
    cluster.control()
    cluster.room = 1  # somebody else was quicker
    cluster.control()
    cluster.schedule()
    grace_s, wait_s = decided(cluster).requested.template["spec"]["terminationGracePeriodSeconds"], 60
    cluster.now += grace_s + wait_s - 1
    assert decided(cluster).phase is RolloutPhase.PROGRESSING
    cluster.now += 1

    assert decided(cluster).phase is RolloutPhase.ROLLING_BACK
    assert decided(cluster).record.reason == Reason.UNSCHEDULABLE


def test_a_revision_that_cannot_load_has_the_deadline_if_nothing_is_lost() -> None:
    cluster, requested = under_way(room=3)
    (server,) = (s for s in cluster.servers if s.revision == requested)
    signals = Signals(load_errors={server.name: "no"})

    assert status_of(cluster, signals)["rollout"]["phase"] == "Progressing"
    assert condition(status_of(cluster, signals), "Stalled") == ("LoadFailed", "no")


def test_a_failure_is_remembered_while_its_pod_restarts() -> None:
    cluster, requested = under_way(room=3)
    (server,) = (s for s in cluster.servers if s.revision == requested)
    cluster.signals = Signals(load_errors={server.name: "the weights are for another model"})
    cluster.operate()
    cluster.signals = None
    assert "rollout" in status_of(cluster)
    assert "failed" not in status_of(cluster)["rollout"]
    cluster.now += DEADLINE_S

    assert decided(cluster).phase is RolloutPhase.ROLLING_BACK
    assert status_of(cluster)["rollout"]["failed"]["message"] == "the weights are for another model"


def test_a_failure_that_could_not_be_reported_yet_is_waited_for() -> None:
    cluster, _ = under_way(room=3)
    cluster.now += DEADLINE_S
    seen = cluster.look()
    rollout = plan.make(type(seen)(**{**vars(seen), "scaling": PublishedScaling(settling=True)})).rollout

    assert rollout is not None
    assert (rollout.phase, rollout.requeue_s) == (RolloutPhase.PROGRESSING, 1)


def test_a_revision_hidden_by_0_replicas_fails_when_it_is_woken() -> None:
    cluster = served(room=2, count=1)
    cluster.spec |= {"replicas": 0, "scaling": {"minReplicas": 0, "maxReplicas": 2}}
    cluster.settle(rounds=3)
    requested = cluster.key(**OTHER)
    cluster.bad.add(requested)
    cluster.settle(rounds=5, step_s=10 * DEADLINE_S)
    assert decided(cluster).phase is RolloutPhase.COMPLETE
    assert not decided(cluster).record.served
    cluster.spec["replicas"] = 1
    cluster.settle(rounds=3)
    assert decided(cluster).target.key == requested
    cluster.settle(step_s=DEADLINE_S / 10)

    assert decided(cluster).phase is RolloutPhase.ROLLED_BACK
    assert cluster.ready == 1


def test_no_revision_returns_if_none_was_ever_served() -> None:
    cluster = Cluster({**served(room=1, count=1).spec}, room=1)
    cluster.bad.add(cluster.key())
    cluster.settle(step_s=60)
    rollout = decided(cluster)

    assert (rollout.phase, len(cluster.applied)) == (RolloutPhase.FAILED, 1)
    assert condition(status_of(cluster), "Stalled")[0] == "ProgressDeadlineExceeded"
    # Whatever was wrong outside is mended: it is served, and good.
    cluster.bad.clear()
    cluster.settle(rounds=2)
    assert (decided(cluster).phase, decided(cluster).record.result) == (RolloutPhase.COMPLETE, RolloutResult.SERVED)


def test_stay_keeps_the_new_template() -> None:
    cluster, requested = under_way(room=3, onFailure="Stay")
    cluster.settle(step_s=60)

    assert decided(cluster).phase is RolloutPhase.FAILED
    assert cluster.applied[-1] == requested
    assert "spec.rollout.onFailure is Stay" in condition(status_of(cluster), "Stalled")[1]
    cluster.spec["rollout"] = {"onFailure": "Rollback"}
    cluster.settle(rounds=3)
    assert decided(cluster).phase is RolloutPhase.ROLLED_BACK


# What is remembered


def failed() -> tuple[Cluster, str, str]:
    cluster, requested = under_way(room=3)
    cluster.settle(step_s=60)
    return cluster, cluster.applied[0], requested


def test_a_failed_revision_is_retried_after_another_spec_was_requested() -> None:
    cluster, first, bad = failed()
    third = cluster.key(**THIRD)
    cluster.settle(rounds=5)
    assert not RolloutRecord.of(cluster.records[bad]).barred
    again = cluster.key(**OTHER)
    cluster.bad.clear()
    cluster.settle(rounds=5)

    assert again == bad
    assert cluster.applied == [first, bad, first, third, bad]
    assert decided(cluster).record.result == RolloutResult.SERVED


def test_a_return_to_the_spec_that_serves_ends_the_matter() -> None:
    cluster, first, _ = failed()
    cluster.key(batching=None)
    del cluster.spec["batching"]
    created_before = cluster.created_pods
    cluster.settle(rounds=5)

    assert (decided(cluster).phase, cluster.created_pods) == (RolloutPhase.COMPLETE, created_before)
    assert condition(status_of(cluster), "Stalled") == ("", "")
    assert decided(cluster).requested.key == first


def test_the_last_good_one_is_kept_whatever_fails_after_it() -> None:
    cluster, first, _ = failed()
    for size in range(10, 24):
        cluster.bad.add(cluster.key(batching={"maxBatchSize": size}))
        cluster.settle(rounds=2)
    planned = cluster.operate()

    assert planned.rollout is not None
    assert planned.rollout.good is not None
    assert planned.rollout.good.key == first
    pruned = {name for _, name in planned.delete}
    assert pruned
    assert f"digits-{first}" not in pruned


def test_a_rollout_that_another_overtakes_is_superseded() -> None:
    cluster, requested = under_way(room=3)
    cluster.key(**THIRD)
    cluster.settle(rounds=5)
    history = status_of(cluster)["rollout"]["history"]

    assert [h["result"] for h in history] == ["Served", "Superseded", "Served"]
    assert history[1]["revision"] == f"digits-{requested}"


def test_records_of_an_earlier_version_are_good_where_they_serve() -> None:
    cluster = without_memory(served(room=2, count=2))
    servers = list(cluster.servers)
    cluster.settle(rounds=2)

    assert cluster.servers == servers
    assert decided(cluster).record.served


def test_an_unrecorded_serving_revision_is_rolled_back_to() -> None:
    cluster = without_memory(served(room=3, count=2))
    first = cluster.applied[-1]
    cluster.bad.add(cluster.key(**OTHER))
    cluster.settle(step_s=60)

    assert decided(cluster).phase is RolloutPhase.ROLLED_BACK
    assert {s.revision for s in cluster.servers} == {first}


def test_a_rollout_at_rest_changes_nothing_as_time_goes_by() -> None:
    cluster = served(room=2, count=2)
    before = cluster.operate()
    cluster.now += 1e6

    assert cluster.operate() == before
    assert decided(cluster).requeue_s is None


@given(st.text(max_size=40) | st.sampled_from(['{"barred": "yes"}', '{"began": 1}', "[]", "null", '{"later": true}']))
def test_a_note_that_cannot_be_read_is_as_none(note: str) -> None:
    assert RolloutRecord.of(_noted(note)) == RolloutRecord()


@given(st.builds(RolloutRecord, began=st.text(max_size=9), message=st.text(max_size=9), barred=st.booleans()))
def test_a_rollout_record_is_read_back(trail: RolloutRecord) -> None:
    assert RolloutRecord.of(trail.on(_noted(""))) == trail


def test_a_failure_for_a_later_versions_reason_stays_a_failure() -> None:
    failed = RolloutRecord(began="b", result="Failed", reason="SomethingNew", message="m", served="s", barred=True)
    read = RolloutRecord.of(failed.on(_noted("")))
    assert read == replace(failed, reason="Unknown", message="SomethingNew: m")


def _noted(note: str) -> Revision:
    return Revision("k", {}, "m", "", None, startup_timeout_s=1, number=1, note=note)


# What is said


def test_the_status_names_the_serving_revision_and_why_not_the_requested_one() -> None:
    cluster, first, bad = failed()
    model_status = status_of(cluster)
    reason, message = condition(model_status, "Stalled")

    assert reason == "RolledBack"
    assert message == (
        f"revision {bad} failed and was rolled back to revision {first}. ProgressDeadlineExceeded: no "
        "pod of the revision was ready within 660 s. Correct the spec, or retry by setting "
        "spec.model.revision to a new value, for example retry-1"
    )
    assert model_status["rollout"]["failed"] == {
        "revision": f"digits-{bad}",
        "reason": "ProgressDeadlineExceeded",
        "message": "no pod of the revision was ready within 660 s",
        "finishedAt": model_status["rollout"]["failed"]["finishedAt"],
    }
    assert model_status["revision"] == {"current": f"digits-{first}", "target": f"digits-{bad}"}
    assert condition(model_status, "Reconciling") == ("", "")


def test_failures_of_new_pods_are_shown_while_the_old_ones_serve() -> None:
    cluster, requested = under_way(room=3)
    waiting = {"reason": "ErrImagePull", "message": "registry.example.com/models/a:2: not found"}
    pulling = [{"name": "fetch", "restartCount": 0, "state": {"waiting": waiting}, "lastState": {}}]
    seen = cluster.look()
    pods = [
        {**p, "status": {**p["status"], "initContainerStatuses": pulling}}
        if p["metadata"]["labels"][names.REVISION_LABEL] == requested
        else p
        for p in seen.pods
    ]
    assert pods != list(seen.pods)
    seen = replace(seen, pods=tuple(pods))
    model_status = dict(status.make(seen, plan.make(seen), now="2026-01-02T03:04:05Z"))

    words = "container fetch: ErrImagePull: registry.example.com/models/a:2: not found"
    assert model_status["rollout"]["phase"] == "Progressing"
    assert model_status["rollout"]["message"].startswith(f"revision {requested} is rolling out; pod ")
    assert model_status["rollout"]["message"].endswith(words)
    assert condition(model_status, "Reconciling") == ("Progressing", model_status["rollout"]["message"])
    assert condition(model_status, "Ready")[0] == "Ready"


@pytest.mark.parametrize(
    ("wait_s", "kind", "read"), [(60, "Reconciling", "InProgress"), (DEADLINE_S, "Stalled", "Failed")]
)
def test_a_rollout_without_capacity_is_blocked_and_later_stalled(wait_s: float, kind: str, read: str) -> None:
    cluster, requested = under_way(strategy="Surge")
    cluster.now += wait_s
    cluster.operate()
    model_status = status_of(cluster)
    reason, message = condition(model_status, kind)

    assert reason == "RolloutBlocked"
    assert message.startswith(f"revision {requested} is waiting for capacity: pod p3 needs 1 more nvidia.com/gpu")
    assert message.endswith(
        "which keeps all 2 old pods until the new revision is ready. Add capacity, or set spec.rollout.strategy: Replace"
    )
    assert kstatus.compute({**cluster.look().resource, "status": model_status}) == read
    assert model_status["rollout"]["phase"] == "Blocked"


def test_the_balancers_route_the_name_that_the_ready_pods_serve() -> None:
    cluster = served(room=3, count=2)
    cluster.spec["model"] = {**cluster.spec["model"], "name": "other"}
    names = []
    for act in (cluster.operate, cluster.control, cluster.schedule, cluster.operate, cluster.start, cluster.operate):
        act()
        names.append(decided(cluster).model)

    assert names[0] == names[3] == "digits"
    assert names[-1] == "other"


@pytest.mark.parametrize("strategy", ["Auto", "Canary"])
def test_requests_for_a_new_name_wake_a_model_renamed_at_zero(strategy: str) -> None:
    cluster = served(room=3, count=2, strategy=strategy)
    cluster.spec |= {"replicas": 0, "scaling": {"minReplicas": 0, "maxReplicas": 4}}
    cluster.settle(rounds=4, step_s=5)
    cluster.spec["model"] = {**cluster.spec["model"], "name": "other"}
    cluster.settle(rounds=2, step_s=5)
    assert (decided(cluster).phase, decided(cluster).model) == (RolloutPhase.COMPLETE, "other")

    cluster.spec["replicas"] = 1
    for act in (cluster.operate, cluster.control, cluster.schedule, cluster.operate, cluster.start, cluster.operate):
        act()
        assert decided(cluster).model == "other"


def test_requests_follow_ready_pods_if_a_change_of_name_is_undone() -> None:
    cluster = served(room=3, count=2)
    first, before = cluster.key(), cluster.spec["model"]
    cluster.spec["model"] = {**before, "name": "other"}
    for act in (cluster.operate, cluster.control, cluster.schedule, cluster.start, cluster.operate, cluster.control):
        act()
    for server in [s for s in cluster.servers if s.revision == first]:
        cluster.lose(server)
    assert [s.ready for s in cluster.servers] == [True]

    cluster.key(model=before)
    routed = []
    for act in (cluster.operate, cluster.control, cluster.schedule, cluster.operate, cluster.start, cluster.operate):
        act()
        routed.append(decided(cluster).model)
    assert (routed[:4], routed[-1]) == (["other"] * 4, "digits")


@pytest.mark.parametrize("strategy", ["Surge", "Replace"])
def test_requests_keep_their_name_if_a_renamed_canary_gets_another_strategy(strategy: str) -> None:
    cluster = served(room=4, count=2, strategy="Canary", canary={"steps": [{"weight": 20, "pause": {}}]})
    cluster.spec["model"] = {**cluster.spec["model"], "name": "other"}
    cluster.settle(rounds=4, step_s=1)
    assert [s.ready for s in cluster.servers if s.slot == "b"] == [True]

    cluster.spec["rollout"] = {"strategy": strategy}
    for _ in range(20):
        for act in (
            cluster.operate,
            cluster.control,
            cluster.schedule,
            cluster.operate,
            cluster.start,
            cluster.operate,
        ):
            act()
            rollout = decided(cluster)
            weights = {placed.slot: placed.weight for placed in rollout.slots}
            serving = {s.revision for s in cluster.servers if s.ready and weights.get(s.slot)}
            assert rollout.model in {r.model for key, r in cluster.records.items() if key in serving}
    assert (rollout.model, rollout.phase) == ("other", RolloutPhase.COMPLETE)


@pytest.mark.parametrize("strategy", ["Surge", "Canary"])
def test_the_status_names_the_model_that_balancers_route(strategy: str) -> None:
    cluster = served(room=3, count=2, strategy=strategy)
    cluster.spec["model"] = {**cluster.spec["model"], "name": "other"}
    for act in (cluster.operate, cluster.control, cluster.schedule):
        act()
    seen = cluster.look()
    named = status.make(seen, plan.make(seen), now="2026-01-01T00:00:00Z")["model"]["name"]

    assert (decided(cluster).target.model, decided(cluster).model, named) == ("other", "digits", "digits")


def test_the_image_in_use_is_that_of_the_stable_revision() -> None:
    cluster = served(room=3, count=2, strategy="Canary", canary={"steps": [{"weight": 20, "pause": {}}]})
    images = []
    for change in ({}, {"runtime": {"gpu": {"count": 1}, "image": "localhost/tritonserver:next"}}):
        requested = cluster.key(**change)
        cluster.settle(rounds=4, step_s=1)
        seen = cluster.look()
        images.append(status.make(seen, plan.make(seen), now="2026-01-01T00:00:00Z")["runtimeImage"])
    assert images[0] == images[1] != "localhost/tritonserver:next"

    cluster.annotations = {PROMOTE: requested}
    cluster.settle(rounds=4, step_s=1)
    seen = cluster.look()
    assert status.make(seen, plan.make(seen), now="2026-01-01T00:00:00Z")["runtimeImage"].endswith(":next")


def test_times_are_those_of_the_view() -> None:
    assert decided(served(room=1, count=1)).record.began == "2025-12-29T09:20:00Z"
    assert START == 1_767_000_000


@pytest.mark.parametrize("strategy", ["Auto", "Replace", "Canary"])
def test_a_correction_takes_the_only_gpu_of_a_broken_first_revision(strategy: str) -> None:
    cluster = Cluster({**served(room=1, count=1).spec, "rollout": {"strategy": strategy}}, room=1)
    cluster.bad.add(cluster.key())
    cluster.settle(rounds=10)
    assert cluster.ready == 0
    corrected = cluster.key(**OTHER)
    cluster.settle(rounds=40)
    assert [(server.revision, server.ready) for server in cluster.servers] == [(corrected, True)]


def test_a_correction_with_surge_is_blocked_by_a_broken_first_revision() -> None:
    cluster = Cluster({**served(room=1, count=1).spec, "rollout": {"strategy": "Surge"}}, room=1)
    cluster.bad.add(cluster.key())
    cluster.settle(rounds=10)
    cluster.key(**OTHER)
    cluster.settle(rounds=40)
    reason, message = condition(status_of(cluster), "Reconciling")
    assert reason == Reason.ROLLOUT_BLOCKED
    assert "Insufficient nvidia.com/gpu" in message
    # Another strategy takes the GPU of the broken pod.
    cluster.spec["rollout"] = {"strategy": "Auto"}
    cluster.settle(rounds=40)
    assert cluster.ready == 1
