"""The ledger of a namespace's GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from halcyon.api.conditions import Reason
from halcyon.api.spec.parse import parse
from halcyon.control.acceptance.accepted_specs import AcceptedSpecs
from halcyon.control.desired.acceptance_result import Acceptance
from halcyon.control.desired.name_conflicts import ConflictingObject
from halcyon.control.desired.plan import ReconcilePlan, make
from halcyon.control.reconcile.gpu_reservations import GpuReservations
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.scope import Gpus
from halcyon.kube import kinds
from halcyon.kube.kinds import Key
from halcyon.render import names
from tests.unit.control.scope_builders import PVC, applied_children, resource, scope_of
from tests.unit.kube.memory_kube import MemoryKube

FIRST, SECOND, THIRD = (Key("team", name) for name in ("one", "two", "three"))
ELSEWHERE = Key("other", "one")


def plan(key: Key, replicas: int, *, gpus: int = 1, reason: Reason = Reason.ACCEPTED) -> ReconcilePlan:
    spec = parse(key.name, {"replicas": replicas, "model": {"source": PVC}, "runtime": {"gpu": {"count": gpus}}})
    return ReconcilePlan(Acceptance(accepted=reason is Reason.ACCEPTED, reason=reason, message=""), spec=spec)


class Ledger:
    def __init__(self, *, limited: bool = True) -> None:
        self.again: list[Key] = []
        self.caches = ClusterState(MemoryKube(), enqueue=lambda _: None)
        self.gpus = GpuReservations(self.caches, AcceptedSpecs(self.caches), self.again.append, limited=limited)

    def accept(self, key: Key, planned: ReconcilePlan) -> None:
        """A plan that is made and written."""
        self.gpus.planned(key, planned)
        self.gpus.sent(key)
        self.gpus.written(key)

    def store(self, spec: dict[str, Any], *, count: int | None = None, tampered: bool = False) -> None:
        """A model `digits` as an earlier process has left it."""
        before = scope_of(spec)
        children = applied_children(before, make(before))
        self.caches.resources._store(Key("team", "digits"), resource(spec))
        for (kind, name), obj in children.items():
            stored = obj | {"metadata": obj["metadata"] | {"resourceVersion": "1"}}
            if tampered and name == names.balancer("digits") and kind is kinds.CONFIG_MAP:
                text = stored["data"]["accepted.json"].replace('"maxReplicas":3', '"maxReplicas":900')
                stored = stored | {"data": stored["data"] | {"accepted.json": text}}
            if count is not None and name == "digits-a" and kind is kinds.DEPLOYMENT:
                stored = stored | {"spec": stored["spec"] | {"replicas": count}}
            self.caches.children[kind]._store(Key("team", name), stored)


def test_planned_gpus_count_for_all_others_of_the_namespace() -> None:
    ledger = Ledger()
    ledger.gpus.planned(FIRST, plan(FIRST, 2, gpus=4))
    ledger.accept(SECOND, plan(SECOND, 3))
    ledger.gpus.planned(ELSEWHERE, plan(ELSEWHERE, 100))

    assert ledger.gpus.gpus(SECOND) == Gpus(3, 8)
    assert ledger.gpus.gpus(THIRD) == Gpus(0, 11)


def test_reserved_gpus_alone_are_no_right() -> None:
    ledger = Ledger()
    ledger.gpus.planned(FIRST, plan(FIRST, 8))
    assert ledger.gpus.gpus(FIRST) == Gpus(0, 0)
    ledger.gpus.sent(FIRST)
    assert ledger.gpus.gpus(FIRST) == Gpus(0, 0)
    ledger.gpus.written(FIRST)
    assert ledger.gpus.gpus(FIRST) == Gpus(8, 0)


def test_a_reservation_of_which_nothing_was_written_is_given_back() -> None:
    ledger = Ledger()
    ledger.accept(FIRST, plan(FIRST, 2))
    ledger.gpus.planned(SECOND, replace(plan(SECOND, 0, reason=Reason.POLICY_DENIED), spec=None))
    ledger.gpus.planned(FIRST, plan(FIRST, 8))
    assert ledger.gpus.gpus(SECOND) == Gpus(0, 8)
    ledger.gpus.withdrawn(FIRST)
    assert (ledger.gpus.gpus(SECOND), ledger.gpus.gpus(FIRST), ledger.again) == (Gpus(0, 2), Gpus(2, 0), [SECOND])


def test_servers_that_may_be_written_count_until_a_plan_is_complete() -> None:
    ledger = Ledger()
    ledger.gpus.planned(FIRST, plan(FIRST, 8))
    ledger.gpus.sent(FIRST)
    ledger.gpus.withdrawn(FIRST)
    ledger.gpus.planned(FIRST, plan(FIRST, 2))
    ledger.gpus.sent(FIRST)
    assert (ledger.gpus.gpus(SECOND), ledger.gpus.gpus(FIRST)) == (Gpus(0, 8), Gpus(0, 0))
    ledger.gpus.written(FIRST)
    assert ledger.gpus.gpus(SECOND) == Gpus(0, 2)


def test_gpus_that_a_model_returns_are_free_once_written() -> None:
    ledger = Ledger()
    ledger.accept(FIRST, plan(FIRST, 8))
    ledger.gpus.planned(FIRST, plan(FIRST, 1))
    assert ledger.gpus.gpus(SECOND) == Gpus(0, 8)
    ledger.gpus.written(FIRST)
    assert ledger.gpus.gpus(SECOND) == Gpus(0, 1)


def test_a_plan_that_makes_nothing_changes_nothing() -> None:
    ledger = Ledger()
    ledger.accept(FIRST, plan(FIRST, 8))
    ledger.accept(FIRST, replace(plan(FIRST, 0, reason=Reason.INVALID), spec=None))
    assert ledger.gpus.gpus(FIRST) == Gpus(8, 0)


def test_a_model_blocked_by_a_conflicting_object_holds_nothing() -> None:
    ledger = Ledger()
    waiting = replace(
        plan(FIRST, 8, reason=Reason.CONFLICT), conflicts=(ConflictingObject("Service", "one", leaving=False),)
    )
    ledger.accept(FIRST, waiting)
    assert ledger.gpus.gpus(SECOND) == Gpus(0, 0)


def test_servers_of_the_revision_before_count_while_they_are_kept() -> None:
    """A revision with fewer GPUs failed, so the servers are of the one before it."""
    large = make(scope_of({"runtime": {"gpu": {"count": 4}}}))
    small = make(scope_of({"runtime": {"gpu": {"count": 1}}}))
    assert small.rollout is not None
    assert large.rollout is not None
    ledger = Ledger()
    ledger.accept(FIRST, replace(small, rollout=replace(small.rollout, slots=large.rollout.slots)))
    assert ledger.gpus.gpus(SECOND) == Gpus(0, 4)


def test_a_deleted_model_counts_until_its_deployment_is_gone() -> None:
    digits, ledger = Key("team", "digits"), Ledger()
    ledger.store({"scaling": {"maxReplicas": 8}, "runtime": {"gpu": {"count": 2}}}, count=3)
    assert ledger.gpus.gpus(FIRST) == Gpus(0, 16)
    ledger.gpus.deleted(digits)
    assert (ledger.gpus.gpus(FIRST), ledger.gpus.gpus(digits)) == (Gpus(0, 6), Gpus(0, 0))
    ledger.caches.children[kinds.DEPLOYMENT]._store(Key("team", "digits-a"), None)
    ledger.gpus.deleted(digits)
    assert ledger.gpus.gpus(FIRST) == Gpus(0, 0)


def test_a_refused_model_is_requeued_when_another_holds_less() -> None:
    ledger = Ledger()
    ledger.accept(FIRST, plan(FIRST, 8))
    ledger.accept(SECOND, replace(plan(SECOND, 0, reason=Reason.POLICY_DENIED), spec=None))
    assert ledger.again == []
    ledger.accept(FIRST, plan(FIRST, 4))
    assert ledger.again == [SECOND]
    ledger.gpus.deleted(FIRST)
    assert ledger.again == [SECOND, SECOND]
    ledger.accept(SECOND, plan(SECOND, 8))
    ledger.accept(SECOND, plan(SECOND, 2))
    assert ledger.again == [SECOND, SECOND]


def test_a_new_process_begins_with_what_was_accepted() -> None:
    ledger = Ledger()
    ledger.store({"scaling": {"maxReplicas": 3}, "runtime": {"gpu": {"count": 2}}})
    assert ledger.gpus.gpus(FIRST) == Gpus(0, 6)


def test_the_replicas_in_force_of_a_model_without_scaling_count() -> None:
    ledger = Ledger()
    ledger.store({"runtime": {"gpu": {"count": 2}}}, count=5)
    assert ledger.gpus.gpus(FIRST) == Gpus(0, 10)


def test_a_new_process_counts_the_deployment_last_written_by_an_earlier_one() -> None:
    """It was killed before it wrote the accepted spec."""
    ledger = Ledger()
    ledger.store({"runtime": {"gpu": {"count": 2}}}, count=5)
    ledger.caches.children[kinds.CONFIG_MAP]._store(Key("team", names.balancer("digits")), None)
    assert ledger.gpus.gpus(FIRST) == Gpus(0, 10)


def test_edits_of_the_accepted_spec_count_for_nothing() -> None:
    ledger = Ledger()
    ledger.store({"scaling": {"maxReplicas": 3}}, tampered=True)
    assert ledger.gpus.gpus(Key("team", "digits")) == Gpus(1, 0)


def test_gpus_are_not_counted_without_a_limit() -> None:
    ledger = Ledger(limited=False)
    ledger.gpus.planned(FIRST, plan(FIRST, 2))
    ledger.gpus.deleted(FIRST)
    assert ledger.gpus.gpus(SECOND) == Gpus()
