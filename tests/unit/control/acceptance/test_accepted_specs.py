"""The spec in force, which lies where tenants may write: what was accepted counts, whatever is written over it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from halcyon.api.conditions import Reason
from halcyon.api.policy.site_policy import SitePolicy
from halcyon.control.acceptance.accepted_specs import AcceptedSpecs, _InForce
from halcyon.control.autoscaling.limits.gpu_budget import GpuBudget
from halcyon.control.autoscaling.limits.replica_limits import ReplicaLimits
from halcyon.kube.kinds import CONFIG_MAP, CONTROLLER_REVISION, DEPLOYMENT, Key
from halcyon.render import names
from tests.clocks import DrivenClock
from tests.specs import OneSpec
from tests.unit.control.reconcile.reconciled_namespace import Team
from tests.unit.render.rendered import SITE

KEY = Key("team", "one")
MAP = names.balancer("one")
GOOD: dict[str, Any] = {"scaling": {"maxReplicas": 8}, "runtime": {"gpu": {"count": 1}}}
BAD: dict[str, Any] = {"scaling": {"maxReplicas": 9}, "runtime": {"gpu": {"count": 1}}}
"""More than the site allows a model."""
POLICY = SitePolicy.model_validate({"limits": {"gpusPerModel": 8}})


def forged(text: str, *, gpus: int = 0, most: int = 1000) -> str:
    """What a tenant would rather have accepted."""
    spec = json.loads(text)
    spec["runtime"]["gpu"] = {"count": gpus}
    spec["scaling"]["maxReplicas"] = most
    return json.dumps(spec)


async def served(**spec: Any) -> Team:
    """A model whose spec was accepted, and written."""
    team = Team(replace(SITE, policy=POLICY))
    team.ask("one", **(spec or GOOD))
    await team.reconcile("one")
    return team


async def refused() -> Team:
    """The same, whose spec was changed since to one that the site doesn't allow."""
    team = await served()
    team.ask("one", **BAD)
    await team.reconcile("one")
    assert team.api.accepted["one"] == Reason.POLICY_DENIED
    return team


def gpus_and_replicas(team: Team, spec_of: AcceptedSpecs | None = None) -> tuple[int, int] | None:
    """GPUs of a pod and the most replicas, by the spec in force."""
    spec = (spec_of or team.spec_of).get(KEY)
    if spec is None:
        return None
    assert spec.scaling is not None
    return spec.runtime.gpu.count, spec.scaling.max_replicas


@pytest.mark.parametrize("make", [served, refused])
@pytest.mark.parametrize("read_before", [True, False], ids=["asked for before", "asked for by nobody yet"])
async def test_an_overwritten_accepted_spec_is_not_in_force_and_is_restored(make: Any, read_before: bool) -> None:
    team: Team = await make()
    if read_before:
        assert gpus_and_replicas(team) == (1, 8)
    text = team.accepted_text("one")
    for n in range(3):
        team.write_accepted("one", forged(text, most=1000 - n))
        assert gpus_and_replicas(team) == (1, 8)
        await team.reconcile("one")
        assert team.accepted_text("one") == text
        assert gpus_and_replicas(team) == (1, 8)

    assert team.event_reasons().count("AcceptedSpecEdited") == 1


@pytest.mark.parametrize("make", [served, refused])
async def test_a_deleted_accepted_spec_stays_in_force_and_is_written_again(make: Any) -> None:
    team: Team = await make()
    text = team.accepted_text("one")
    team.seen(CONFIG_MAP, MAP, None)
    assert gpus_and_replicas(team) == (1, 8)
    await team.reconcile("one")
    assert team.accepted_text("one") == text
    assert gpus_and_replicas(team) == (1, 8)


async def test_a_budget_holds_whatever_is_written_over_the_accepted_spec() -> None:
    team = await served()
    team.write_accepted("one", forged(team.accepted_text("one")))
    spec = team.spec_of.get(KEY)
    assert spec is not None
    ceiling = GpuBudget(4).request(KEY, desired=8, current=1, gpus=spec.runtime.gpu.count)
    assert ceiling is not None
    assert ceiling.replicas == 1


async def test_a_spec_that_was_accepted_earlier_is_no_spec_in_force() -> None:
    team = await served(**GOOD)
    before = team.accepted_text("one")
    team.ask("one", **GOOD | {"scaling": {"maxReplicas": 2}})
    await team.reconcile("one")
    assert gpus_and_replicas(team) == (1, 2)
    team.write_accepted("one", before)
    assert gpus_and_replicas(team) == (1, 2)


async def test_a_new_spec_is_in_force_with_its_seal_and_its_text() -> None:
    team = await served()
    before = dict(team.api.objects)
    assert gpus_and_replicas(team) == (1, 8)
    team.ask("one", **GOOD | {"scaling": {"maxReplicas": 2}})
    await team.reconcile("one")
    after = dict(team.api.objects)
    records = [(kind, name) for kind, _, name in after if kind is CONTROLLER_REVISION]
    for kind, name in (*records, (CONFIG_MAP, MAP)):
        team.seen(kind, name, before[kind, "team", name])
    assert gpus_and_replicas(team) == (1, 8)

    for kind, name in records:
        team.seen(kind, name, after[kind, "team", name])
    assert gpus_and_replicas(team) == (1, 8)
    team.seen(CONFIG_MAP, MAP, after[CONFIG_MAP, "team", MAP])
    assert gpus_and_replicas(team) == (1, 2)
    assert "AcceptedSpecEdited" not in team.event_reasons()


async def test_a_text_not_replaced_yet_counts_as_unedited() -> None:
    """The operator was killed between the record and the text."""
    team = await served()
    before = team.api.objects[CONFIG_MAP, "team", MAP]
    team.ask("one", **GOOD | {"scaling": {"maxReplicas": 2}})
    await team.reconcile("one")
    team.seen(CONFIG_MAP, MAP, before)
    team.spec_of._in_force.clear()
    team.spec_of._in_force[KEY] = _InForce(before["data"]["accepted.json"])
    await team.reconcile("one")
    assert "AcceptedSpecEdited" not in team.event_reasons()
    assert gpus_and_replicas(team) == (1, 2)


async def test_a_new_process_has_no_opinion_of_what_was_written_over() -> None:
    team = await served()
    team.write_accepted("one", forged(team.accepted_text("one")))
    fresh = AcceptedSpecs(team.caches)
    assert gpus_and_replicas(team, fresh) is None
    await team.reconcile("one")
    assert gpus_and_replicas(team, fresh) == (1, 8)


async def test_the_budget_knows_a_model_without_a_known_spec_by_its_servers() -> None:
    team = await served()
    budget = GpuBudget(4)
    ReplicaLimits(team.caches, OneSpec(None), DrivenClock(lambda: 0.0), budget).share(set())
    assert budget.request(Key("team", "two"), desired=4, current=0, gpus=1) is not None
    team.seen(DEPLOYMENT, "one-a", None)
    assert list(ReplicaLimits(team.caches, OneSpec(None), DrivenClock(lambda: 0.0), GpuBudget(4)).share(set())) == []


async def test_a_new_model_of_the_same_name_has_accepted_nothing_yet() -> None:
    team = await served()
    assert gpus_and_replicas(team) == (1, 8)
    team.ask("one", uid="another", **BAD)
    assert gpus_and_replicas(team) is None
    team.delete("one")
    assert gpus_and_replicas(team) is None
    assert not team.spec_of._in_force


async def test_a_record_of_an_earlier_version_is_sealed_despite_a_rejected_spec() -> None:
    team = await refused()
    for kind, _, name in list(team.api.objects):
        if kind is CONTROLLER_REVISION:
            stored = team.api.objects[kind, "team", name]
            bare = {k: v for k, v in stored["metadata"].items() if k != "annotations"}
            team.seen(kind, name, stored | {"metadata": bare})
    await team.reconcile("one")
    team.write_accepted("one", forged(team.accepted_text("one")))
    assert gpus_and_replicas(team) == (1, 8)
    assert gpus_and_replicas(team, AcceptedSpecs(team.caches)) is None


async def test_a_spec_is_parsed_once_for_any_number_of_reads() -> None:
    team = await served()
    first = team.spec_of.get(KEY)
    team.ask("one", **GOOD)
    assert first is not None
    assert team.spec_of.get(KEY) is first


async def test_equal_parts_of_accepted_specs_are_in_memory_once() -> None:
    team = Team(replace(SITE, policy=POLICY))
    for name, most in (("one", 8), ("two", 7)):
        team.ask(name, **GOOD | {"scaling": {"maxReplicas": most}})
        await team.reconcile(name)
    first, second = (team.spec_of.get(Key("team", name)) for name in ("one", "two"))
    assert first is not None
    assert second is not None
    assert (first.runtime, first.traffic, first.rollout) == (second.runtime, second.traffic, second.rollout)
    assert first.runtime is second.runtime
    assert first.traffic is second.traffic
    assert first.scaling != second.scaling


async def test_a_deleted_model_leaves_no_key_behind() -> None:
    team = await served()
    records = [name for kind, _, name in team.api.objects if kind is CONTROLLER_REVISION]
    team.delete("one")
    team.seen(CONFIG_MAP, MAP, None)
    for name in records:  # the garbage collector deletes them after the ConfigMap
        team.seen(CONTROLLER_REVISION, name, None)
    assert not team.spec_of._stale
