"""Objects to delete: which revisions and ConfigMaps are kept."""

from __future__ import annotations

from dataclasses import replace

from halcyon.control.desired.plan import make
from halcyon.control.state.scope import Scope, SourceState
from halcyon.kube import kinds
from halcyon.render import names, revision
from halcyon.render.revision import HISTORY_LIMIT, Content, Revision
from tests.unit.control.scope_builders import PVC, pod, scope_of


def many(count: int) -> tuple[Scope, list[Revision]]:
    """A ModelDeployment that has had so many revisions before the one asked for now."""
    old = []
    for n in range(1, count + 1):
        target = make(scope_of({"model": {"source": PVC, "revision": str(n)}})).target
        assert target is not None
        old.append(replace(target, number=n))
    maps = {name for r in old for name in revision.config_maps(r, "digits")}
    return scope_of(revisions=tuple(old), config_maps=tuple(sorted(maps))), old


def test_ten_revisions_are_kept_the_newest_first() -> None:
    now, old = many(14)
    deleted = {name for kind, name in make(now).delete if kind is kinds.CONTROLLER_REVISION}

    assert deleted == {names.revision("digits", r.key) for r in old[: 14 - (HISTORY_LIMIT - 1)]}


def test_no_revision_is_pruned_up_to_ten() -> None:
    assert make(many(HISTORY_LIMIT - 1)[0]).delete == ()


def test_a_revision_that_a_pod_runs_is_kept_however_old() -> None:
    now, old = many(14)
    planned = make(replace(now, pods=(pod("p", ready=True, revision=old[0].key),)))
    deleted = {name for _, name in planned.delete}

    assert names.revision("digits", old[0].key) not in deleted
    assert names.revision("digits", old[1].key) in deleted


def test_config_maps_go_with_the_last_revision_that_needs_them() -> None:
    content = [Content(data={"a": str(n)}, binary={}) for n in range(14)]
    spec = {"model": {"source": {"configMap": {"name": "m", "items": [{"key": "a", "path": "1/a"}]}}}}
    old = []
    for n, this in enumerate(content):
        target = make(scope_of(spec, source=SourceState(content=this))).target
        assert target is not None
        old.append(replace(target, number=n + 1))
    maps = sorted({name for r in old for name in revision.config_maps(r, "digits")})
    now = scope_of(spec, source=SourceState(content=content[-1]), revisions=tuple(old), config_maps=tuple(maps))
    deleted = {name for kind, name in make(now).delete if kind is kinds.CONFIG_MAP}

    # All of them share one overlay; each has its own copy of the model.
    assert deleted == {r.snapshot for r in old[: 14 - HISTORY_LIMIT]}


def test_a_record_in_another_format_keeps_itself_and_every_config_map() -> None:
    now, old = many(14)
    newer = revision.record(now.subject, old[0])
    newer["data"] = {"format": 99, "maps": list(now.config_maps)}
    name = newer["metadata"]["name"]
    beside = replace(
        now, children={(kinds.CONTROLLER_REVISION, name): newer}, revisions=tuple(old[1:]), config_maps=("spare",)
    )
    planned = make(beside)

    assert {kind for kind, _ in planned.delete} == {kinds.CONTROLLER_REVISION}
    assert name not in {n for _, n in planned.delete}
    assert (kinds.CONFIG_MAP, "spare") in make(replace(beside, children={})).delete
