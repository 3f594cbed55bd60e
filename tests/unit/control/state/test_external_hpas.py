"""HPAs of others, found by their scale target: whose name the status has, and which ModelDeployments they concern."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Key
from tests.unit.control.scope_builders import UID, resource
from tests.unit.control.state.manual_caches import DIGITS, ManualCaches, labelled


def autoscaler(
    name: str, target: str, *, kind: str = "ModelDeployment", api_version: str | None = None, owner: Any = None
) -> Object:
    meta: Object = {"namespace": "team", "name": name, "uid": name}
    if owner:
        meta["ownerReferences"] = [owner]
    reference = {"kind": kind, "name": target} | ({"apiVersion": api_version} if api_version else {})
    return {"metadata": meta, "spec": {"scaleTargetRef": reference}}


@pytest.mark.parametrize(
    ("hpa", "description"),
    [
        (autoscaler("mine", "digits"), "HorizontalPodAutoscaler mine"),
        (
            autoscaler(
                "keda-hpa", "digits", owner={"kind": "ScaledObject", "name": "so", "uid": "x", "controller": True}
            ),
            "HorizontalPodAutoscaler keda-hpa of ScaledObject so",
        ),
        (
            autoscaler("digits", "digits", owner={"kind": "ModelDeployment", "uid": "UID", "controller": True}),
            "",
        ),
        (autoscaler("theirs", "other"), ""),
        (autoscaler("theirs", "digits", kind="Deployment"), ""),
        (autoscaler("theirs", "digits", kind="StatefulSet"), ""),
        (autoscaler("mine", "digits", api_version="serving.halcyon.dev/v1alpha1"), "HorizontalPodAutoscaler mine"),
        (autoscaler("theirs", "digits", api_version="ml.example.com/v1"), ""),
    ],
)
async def test_an_external_hpa_is_found_by_its_target(hpa: Object, description: str) -> None:
    world = ManualCaches()
    world.store(world.caches.resources, resource())
    for owner in hpa["metadata"].get("ownerReferences", ()):
        owner["uid"] = UID if owner["uid"] == "UID" else owner["uid"]
    world.store(world.caches.hpas, hpa)

    view = await world.scopes.build(DIGITS, uncached={}, rejected="")

    assert view is not None
    assert view.external_hpa == description


@pytest.mark.parametrize(
    ("hpa", "below"),
    [
        (autoscaler("theirs", "digits-a", kind="Deployment"), {"digits-a": "HorizontalPodAutoscaler theirs"}),
        (
            autoscaler("theirs", "digits-balancer", kind="Deployment"),
            {"digits-balancer": "HorizontalPodAutoscaler theirs"},
        ),
        (autoscaler("theirs", "digits-other", kind="Deployment"), {}),
        (
            autoscaler("theirs", "digits-a", kind="Deployment", api_version="apps/v1"),
            {"digits-a": "HorizontalPodAutoscaler theirs"},
        ),
        (autoscaler("theirs", "digits-a", kind="Deployment", api_version="apps.example.com/v1"), {}),
        (autoscaler("theirs", "digits-a"), {}),
    ],
)
async def test_an_autoscaler_on_a_deployment_of_servers_is_found_too(hpa: Object, below: dict[str, str]) -> None:
    world = ManualCaches()
    world.store(world.caches.resources, resource())
    world.store(world.caches.hpas, hpa)

    view = await world.scopes.build(DIGITS, uncached={}, rejected="")

    assert view is not None
    assert (view.external_hpa, view.deployment_hpas) == ("", below)


def test_an_hpa_on_our_deployment_concerns_its_owner_and_others_none() -> None:
    world = ManualCaches()
    world.store(world.caches.children[kinds.DEPLOYMENT], labelled(kinds.DEPLOYMENT, "digits-a", "digits"))
    world.queued.clear()
    world.store(world.caches.hpas, autoscaler("theirs", "digits-a", kind="Deployment"))
    world.store(world.caches.hpas, autoscaler("another", "website", kind="Deployment"))

    assert world.queued == [DIGITS]


def test_an_autoscaler_that_takes_another_target_concerns_both() -> None:
    world = ManualCaches()
    world.store(world.caches.hpas, autoscaler("theirs", "digits"))
    assert world.queued == [DIGITS]

    world.store(world.caches.hpas, autoscaler("theirs", "other"))
    assert world.queued[1:] == [DIGITS, Key("team", "other")]
