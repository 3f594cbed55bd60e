"""Orphans: which objects without an owner Halcyon has written for a model."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon.control.desired.plan import make
from halcyon.control.objects.orphans import is_orphan
from halcyon.control.state.scope import SourceState
from halcyon.kube import kinds
from halcyon.kube.apply_diff import with_digest
from halcyon.kube.kinds import Object, kind_of
from halcyon.metricsapi.api_service import ExternalMetricsApi
from halcyon.render import names
from halcyon.render.revision import Content
from tests.unit.control.scope_builders import scope_of

FILES: dict[str, Any] = {"configMap": {"name": "files", "items": [{"key": "config.pbtxt", "path": "config.pbtxt"}]}}
OURS = ExternalMetricsApi(ours=True, why="Halcyon serves external.metrics.k8s.io", tolerance=True)


def written(**spec: Any) -> list[Object]:
    """Return the objects of a model `digits` as they are restored: as applied, but without their owner."""
    source = SourceState(content=Content({"config.pbtxt": "max_batch_size: 8"}, {"model.onnx": "AAAA"}))
    planned = make(
        scope_of({"model": {"source": FILES}, "scaling": {"maxReplicas": 4}} | spec, source=source, metrics_api=OURS)
    )
    assert planned.acceptance.accepted, planned.acceptance.message
    objects = [with_digest(obj) for obj in (*planned.first, *planned.then)]
    return [
        {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "ownerReferences"}} for obj in objects
    ]


@pytest.mark.parametrize("mode", ["Balancer", "Direct"])
def test_each_object_that_halcyon_writes_can_be_an_orphan(mode: str) -> None:
    objects = written(traffic={"mode": mode})
    assert {kind.kind for kind in kinds.CHILDREN} - {obj["kind"] for obj in objects} == (
        set() if mode == "Balancer" else {"ServiceAccount", "Role", "RoleBinding"}
    )
    for obj in objects:
        assert is_orphan(obj, kind_of(obj), "digits"), obj["metadata"]["name"]
        assert not is_orphan(obj, kind_of(obj), "other")


def test_an_object_with_any_owner_is_no_orphan() -> None:
    for obj in written():
        owned = {**obj, "metadata": obj["metadata"] | {"ownerReferences": [names.owner("digits", "deleted")]}}
        assert not is_orphan(owned, kind_of(obj), "digits")


def test_a_config_map_of_the_command_line_is_no_orphan() -> None:
    labels = {names.OWNER_LABEL: "digits", names.MANAGER_LABEL: names.MANAGER}
    capacity = {"metadata": {"name": names.measured_capacity("digits"), "labels": labels}, "data": {}}
    assert not is_orphan(with_digest(capacity), kinds.CONFIG_MAP, "digits")


@pytest.mark.parametrize("data", [{}, {"data": None}, {"data": [1]}, {"data": {"key": 7}}], ids=str)
def test_a_revision_without_its_key_is_no_orphan(data: dict[str, Any]) -> None:
    (record,) = (obj for obj in written() if kind_of(obj) is kinds.CONTROLLER_REVISION)
    bare = {key: value for key, value in record.items() if key != "data"}
    assert not is_orphan(bare | data, kinds.CONTROLLER_REVISION, "digits")
