"""Existing objects that have the name of a child: which ones are a conflict, and what the status says of them."""

from __future__ import annotations

import pytest

from halcyon.api.conditions import Reason
from halcyon.control.desired.name_conflicts import ConflictingObject
from halcyon.control.desired.plan import make
from halcyon.control.objects.child_names import every_child
from halcyon.control.status import status
from halcyon.kube import kinds
from halcyon.metricsapi.api_service import ExternalMetricsApi
from tests.unit.control.scope_builders import applied_children, conflicting_object, scope_of

SCALING = {"scaling": {"maxReplicas": 4}}
OURS = ExternalMetricsApi(ours=True, why="Halcyon serves external.metrics.k8s.io", tolerance=True)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (k, n)
        for k, n in every_child("digits")
        if k is not kinds.HPA
        and k not in (*kinds.ROUTES, *kinds.OPTIONAL)
        and not n.endswith(("-b", "-headless", "-route-a"))
    ],
    ids=lambda v: str(v)[-30:],
)
def test_a_conflicting_object_stops_everything_and_is_named(kind: kinds.Kind, name: str) -> None:
    planned = make(scope_of(children={(kind, name): conflicting_object(kind, name)}))

    assert planned.acceptance.reason is Reason.CONFLICT
    assert (
        f"{kind.kind} {name} already exists and does not belong to this ModelDeployment; Halcyon will not modify it"
        in (planned.acceptance.message)
    )
    assert planned.conflicts == (ConflictingObject(kind.kind, name, leaving=False),)
    assert (planned.first, planned.then) == ((), ())


def test_several_conflicting_objects_are_named_in_one_sentence() -> None:
    names_of = {
        kind: next(name for k, name in every_child("digits") if k is kind) for kind in (kinds.SERVICE, kinds.CONFIG_MAP)
    }
    planned = make(scope_of(children={(kind, name): conflicting_object(kind, name) for kind, name in names_of.items()}))

    assert len(planned.conflicts) == 2
    assert planned.acceptance.message.endswith(
        "already exist and do not belong to this ModelDeployment; Halcyon will not modify them. Delete them, recreate "
        "them under other names, or choose another name for the ModelDeployment"
    )


def test_an_autoscaler_of_our_name_that_scales_something_else_is_a_conflict() -> None:
    planned = make(
        scope_of(SCALING, children={(kinds.HPA, "digits"): conflicting_object(kinds.HPA, "digits")}, metrics_api=OURS)
    )

    assert planned.conflicts == (ConflictingObject("HorizontalPodAutoscaler", "digits", leaving=False),)


def test_children_of_a_deleted_model_deployment_of_this_name_are_waited_for() -> None:
    old = conflicting_object(kinds.SERVICE, "digits", owner_uid="old")
    planned = make(scope_of(children={(kinds.SERVICE, "digits"): old}))

    assert planned.conflicts == (ConflictingObject("Service", "digits", leaving=True),)
    assert planned.acceptance.message == (
        "Halcyon is waiting for the deletion of Service digits of a deleted ModelDeployment with the same name"
    )


def test_an_object_that_only_refers_to_its_model_is_not_waited_for() -> None:
    # For example a user's own object, or a child whose reference was edited: nothing deletes it while the model exists.
    theirs = conflicting_object(kinds.SERVICE, "digits", owner_uid=scope_of().meta["uid"])
    theirs["metadata"]["ownerReferences"][0]["controller"] = False
    planned = make(scope_of(children={(kinds.SERVICE, "digits"): theirs}))

    assert planned.conflicts == (ConflictingObject("Service", "digits", leaving=False),)
    assert "Service digits already exists" in planned.acceptance.message


def test_a_child_of_another_model_deployment_is_not_waited_for() -> None:
    theirs = conflicting_object(kinds.SERVICE, "digits-server-a", owner_uid="x", owner_name="digits-server-a")
    planned = make(scope_of(children={(kinds.SERVICE, "digits-server-a"): theirs}))

    assert planned.conflicts == (ConflictingObject("Service", "digits-server-a", leaving=False),)


def test_a_taken_name_of_a_new_object_leaves_the_last_spec_ready() -> None:
    before = scope_of()
    first = make(before)
    assert first.target is not None
    conflicting = {(kinds.SERVICE, "digits-headless"): conflicting_object(kinds.SERVICE, "digits-headless")}
    now = scope_of(
        {"traffic": {"mode": "Direct"}}, children=applied_children(before) | conflicting, revisions=(first.target,)
    )
    planned = make(now)

    assert planned.acceptance.reason is Reason.CONFLICT
    assert (planned.then, planned.delete, planned.target) == (first.then, (), first.target)
    (accepted,) = (c for c in status.make(now, planned, now="")["conditions"] if c["type"] == "Accepted")
    assert accepted["status"] == "False"
    assert accepted["message"].startswith("Service digits-headless already exists")
    assert accepted["message"].endswith("; the last accepted spec stays in effect")
