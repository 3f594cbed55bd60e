"""Whether HPAs have a tolerance is found out by a dry run: by what the API server would keep of one, and nothing is written."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from halcyon.kube import errors
from halcyon.kube.client import Object
from halcyon.kube.kinds import Kind
from halcyon.metricsapi.api_service import keeps_tolerance
from halcyon.metricsapi.server import METRICS
from tests.unit.control.copies import copied
from tests.unit.kube.memory_kube import MemoryKube

Change = Callable[[Object], None]


def without_tolerance(*ways: str) -> Change:
    """An API server that doesn't know the field, or not yet in both ways, drops it."""

    def drop(hpa: Object) -> None:
        for way in ways:
            del hpa["spec"]["behavior"][way]["tolerance"]

    return drop


def without_behavior(hpa: Object) -> None:
    del hpa["spec"]["behavior"]


def unchanged(_: Object) -> None:
    """All is kept."""


class Keeping(MemoryKube):
    """Changes what is made as it is told."""

    def __init__(self, change: Change) -> None:
        super().__init__()
        self._change = change

    @override
    async def create(self, kind: Kind, obj: Object, *, namespace: str = "", dry_run: bool = False) -> Object:
        kept = copied(obj)
        self._change(kept)
        return await super().create(kind, kept, namespace=namespace, dry_run=dry_run)


class Refusing(MemoryKube):
    """Answers with an error."""

    @override
    async def create(self, kind: Kind, obj: Object, *, namespace: str = "", dry_run: bool = False) -> Any:
        raise errors.of_status(403, "horizontalpodautoscalers is forbidden")


@pytest.mark.parametrize(
    ("change", "keeps"),
    [
        (unchanged, True),
        (without_tolerance("scaleUp", "scaleDown"), False),
        (without_tolerance("scaleUp"), False),
        (without_tolerance("scaleDown"), False),
        (without_behavior, False),
    ],
    ids=["kept", "dropped", "kept down alone", "kept up alone", "no behavior at all"],
)
async def test_the_tolerance_is_supported_if_kept_both_ways_and_nothing_is_written(change: Change, keeps: bool) -> None:
    kube = Keeping(change)

    assert await keeps_tolerance(kube, namespace="halcyon") is keeps
    assert kube.objects == {}


@pytest.mark.parametrize(
    "kube",
    [Refusing(), MemoryKube().seen_by(lambda _: "refuse"), MemoryKube().seen_by(lambda _: "lose")],
    ids=["refused", "not asked", "answer lost"],
)
async def test_the_tolerance_is_unknown_without_an_answer(kube: MemoryKube) -> None:
    with pytest.raises((errors.ApiError, errors.Unreachable)):
        await keeps_tolerance(kube, namespace="halcyon")
    assert kube.objects == {}


@pytest.mark.parametrize("file", ["docs/concepts/scaling.md", "charts/halcyon/templates/metrics-reader.yaml"])
def test_a_role_of_readers_lists_all_metrics_in_lower_case(file: str) -> None:
    text = (Path(__file__).parents[3] / file).read_text()
    (listed,) = re.findall(r"resources: \[(.*?desiredreplicas.*?)\]", text)
    assert {metric.lower() for metric in METRICS} <= set(listed.split(", "))
