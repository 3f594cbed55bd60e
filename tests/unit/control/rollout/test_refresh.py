"""Renderings of an earlier operator: told, left as they are, and rolled over where a person says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from halcyon.control.desired.plan import ReconcilePlan, make
from halcyon.control.rollout import refresh
from halcyon.control.rollout.refresh import REFRESH, RESTART
from halcyon.control.rollout.rollout_plan import RolloutPhase
from halcyon.control.state.scope import Scope
from halcyon.control.status import status
from halcyon.render import names, revision
from halcyon.render.revision import Revision
from tests.unit.control.rollout.deployment_simulation import served as stable_cluster
from tests.unit.control.scope_builders import PVC, applied_children, resource, scope_of

NEXT = "localhost/halcyon-operator:next"


def served(before: Scope, *renderings: Revision) -> Scope:
    """The view once `before` was applied, with these renderings recorded, as the API server gives them back."""
    target = make(before).target
    assert target is not None
    known = {r.key: r for r in (*before.revisions, target, *renderings)}
    kept = [revision.read(revision.record(before.subject, r)) for r in known.values()]
    return replace(before, children=applied_children(before), revisions=tuple(r for r in kept if r is not None))


def newer(before: Scope, image: str = NEXT, version: str = "0.2.0") -> Scope:
    """As another version of the operator sees it."""
    return replace(before, site=replace(before.site, operator_image=image, version=version))


def scope_with_refresh(before: Scope, wish: str) -> Scope:
    """With the annotation."""
    meta = {**before.resource["metadata"], "annotations": {REFRESH: wish}}
    return replace(before, resource={**before.resource, "metadata": meta})


def target(planned: ReconcilePlan) -> Revision:
    assert planned.target is not None
    return planned.target


def image(revision: Revision) -> str:
    return str(revision.template["spec"]["initContainers"][0]["image"])


def condition(now: Scope) -> dict[str, Any] | None:
    new_status = status.make(now, make(now), now="2026-11-22T00:00:00Z")
    return next((c for c in new_status["conditions"] if c["type"] == "RuntimeOutdated"), None)


def test_the_operator_that_rendered_it_finds_nothing_outdated() -> None:
    now = served(replace(scope_of(), site=replace(scope_of().site, version="0.1.0")))

    assert make(now).outdated == ()
    assert condition(now) is None


def test_a_failed_revision_that_no_server_runs_is_not_outdated() -> None:
    cluster = stable_cluster(room=3, count=2)
    assert condition(newer(cluster.look())) is not None
    cluster.bad = {cluster.key(batching={"maxBatchSize": 2})}
    rollout = cluster.settle(rounds=60).rollout
    assert rollout is not None
    assert rollout.phase is RolloutPhase.ROLLED_BACK
    assert condition(newer(cluster.look())) is None


def test_a_changed_version_applies_the_record_and_shows_the_difference() -> None:
    before = replace(scope_of(), site=replace(scope_of().site, version="0.1.0"))
    now = newer(served(before))
    outdated = condition(now)

    assert target(make(now)).template == target(make(before)).template
    assert outdated is not None
    assert (outdated["status"], outdated["reason"]) == ("True", "PodTemplateOutdated")
    assert "was rendered by version 0.1.0 and stays in use" in outdated["message"]
    assert f"spec.initContainers[fetch].image (localhost/halcyon-operator:dev to {NEXT})" in outdated["message"]
    assert outdated["message"].endswith("run halcyon refresh digits")


def test_a_version_that_renders_the_same_outdates_nothing() -> None:
    now = served(scope_of())

    assert make(replace(now, site=replace(now.site, version="0.2.0"))).outdated == ()


def test_a_record_of_before_renderings_were_compared_is_compared() -> None:
    before = scope_of()
    old = replace(target(make(before)), site="", version="")
    now = replace(served(before), revisions=(old,))

    assert make(now).outdated == ()
    assert make(newer(now)).outdated
    outdated = condition(newer(now))
    assert outdated is not None
    assert "rendered by an earlier version" in outdated["message"]


@pytest.mark.parametrize("name", [False, True])
def test_a_refreshed_revision_is_rendered_afresh_with_its_own_key(name: bool) -> None:
    now = newer(served(scope_of()))
    old = target(make(now))
    wished = scope_with_refresh(now, names.revision("digits", old.key) if name else old.key)
    planned = make(wished)

    assert (image(target(planned)), target(planned).spec_key) == (NEXT, old.key)
    assert target(planned).key != old.key
    assert target(planned).number == old.number + 1
    assert target(planned).template["metadata"]["labels"][names.REVISION_LABEL] == target(planned).key
    assert planned.outdated == ()


def test_a_refresh_is_done_once_whatever_becomes_of_the_annotation() -> None:
    wished = scope_with_refresh(newer(served(scope_of())), target(make(scope_of())).key)
    done = served(wished)

    for now in (done, replace(done, resource=resource())):
        assert target(make(now)).key == target(make(wished)).key
        assert condition(now) is None


def test_each_refresh_names_the_rendering_that_it_ends() -> None:
    wished = scope_with_refresh(newer(served(scope_of())), target(make(scope_of())).key)
    later = newer(served(wished), "localhost/halcyon-operator:later", "0.3.0")
    first, second = target(make(later)), target(make(scope_with_refresh(later, target(make(wished)).key)))

    assert image(first) == NEXT
    assert condition(later) is not None
    assert (image(second), second.spec_key) == ("localhost/halcyon-operator:later", first.spec_key)
    assert len({first.key, second.key, first.spec_key}) == 3


def test_a_current_revision_is_not_rolled_over_by_the_request() -> None:
    now = served(scope_of())

    assert target(make(scope_with_refresh(now, target(make(now)).key))).key == target(make(now)).key


def test_a_refresh_request_for_another_revision_is_ignored() -> None:
    now = newer(served(scope_of()))

    assert target(make(scope_with_refresh(now, "0123456789"))).key == target(make(scope_of())).key


def test_a_spec_gone_back_to_has_its_last_rendering() -> None:
    wished = scope_with_refresh(newer(served(scope_of())), target(make(scope_of())).key)
    other = {"model": {"source": PVC, "revision": "2"}}
    elsewhere = served(replace(served(wished), resource=resource(other)))
    back = replace(elsewhere, resource=resource())

    assert target(make(elsewhere)).spec_key != target(make(scope_of())).key
    assert target(make(back)).key == target(make(wished)).key


def test_a_refused_spec_outdates_nothing() -> None:
    now = newer(served(scope_of()))
    invalid = replace(now, resource=resource({"batching": {"maxBatchSize": 0}}))

    assert condition(invalid) is None


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"version": "0.2.0", "pull_secrets": ("regcred",)}, "spec.imagePullSecrets (none to"),
        ({"version": "0.2.0", "server_image": "localhost/triton:25.01"}, "spec.containers[triton].image ("),
        ({"server_image": "localhost/triton:25.01"}, "with earlier operator settings"),
    ],
)
def test_the_differing_fields_are_named(change: dict[str, Any], text: str) -> None:
    now = served(scope_of())
    outdated = condition(replace(now, site=replace(now.site, **change)))

    assert outdated is not None
    assert text in outdated["message"]


def scope_with_restart(before: Scope, wish: str) -> Scope:
    wished = {**before.resource, "metadata": {**before.meta, "annotations": {RESTART: wish}}}
    return replace(before, resource=wished)


def test_a_restart_replaces_the_pods_of_an_unchanged_template_once() -> None:
    now = served(scope_of())
    old = target(make(now))
    restarted = make(scope_with_restart(now, names.revision("digits", old.key)))

    assert target(restarted).key != old.key
    assert target(restarted).spec_key == old.key
    assert refresh._plain(target(restarted).template) == refresh._plain(old.template)
    after = served(scope_with_restart(now, old.key))
    assert target(make(after)).key == target(make(after)).key
    assert make(after).outdated == ()


def test_a_restart_of_another_revision_is_ignored() -> None:
    now = served(scope_of())

    assert target(make(scope_with_restart(now, "0123456789"))).key == target(make(now)).key


def test_a_revision_keeps_the_parts_of_the_spec_that_led_to_it() -> None:
    old = target(make(served(scope_of())))

    assert old.spec is not None
    assert set(old.spec) >= {"model", "runtime"}
    assert revision.read(revision.record(scope_of().subject, old)) == old
