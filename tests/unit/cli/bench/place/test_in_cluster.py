"""A measurement of a served model in the cluster: its Events, also if it fails."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, Self, cast

import click
import pytest

from halcyon_cli.bench.place import in_cluster, placed_document
from halcyon_cli.bench.place.bench_request import BenchRequest
from halcyon_cli.bench.place.job_lease import PlaceError
from halcyon_cli.bench.records import live_event
from halcyon_cli.errors import ClusterError
from halcyon_measure.errors import MeasureError
from tests.bench_documents import bench_document


class _Failing:
    """A measurement that fails once its load has begun."""

    def __init__(self, *_: object, **__: object) -> None:
        """Take any settings."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Remove nothing."""

    def run(self, **_: object) -> None:
        raise PlaceError("the client has no memory")


def test_failed_measurement_of_a_served_model_has_an_event_of_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[tuple[bool, str | None]] = []
    placement = SimpleNamespace(measured=None, notes=(), client=None, copy=None, trial=None, network_policy=False)
    monkeypatch.setattr(in_cluster, "admitted", lambda *_: placement)
    monkeypatch.setattr(in_cluster, "deadlines", lambda _: None)
    monkeypatch.setattr(in_cluster, "BesideModel", _Failing)
    monkeypatch.setattr(live_event, "record", lambda *_, began, ended=None: events.append((began, ended)))
    request: Any = SimpleNamespace(name="digits", place=SimpleNamespace(live=True, cold_start=0))
    cluster: Any = SimpleNamespace(model=lambda _: {})
    with pytest.raises(PlaceError):
        in_cluster.run(cluster, cast(BenchRequest, request), click.Command("bench"), lambda _: None)
    assert events == [(True, None), (False, "the client has no memory")]


def test_foreign_config_map_with_the_name_of_a_history_stays() -> None:
    cluster: Any = SimpleNamespace(find=lambda *_: {"metadata": {"name": "digits-bench-history"}, "data": {"a": "b"}})
    with pytest.raises(ClusterError, match="ConfigMap digits-bench-history exists, and isn't a history"):
        in_cluster.remember(cluster, {"metadata": {"name": "digits"}}, bench_document())


def test_result_of_another_version_of_the_client_is_read() -> None:
    document = bench_document()
    data = document.model_dump(mode="json")
    data["requests"]["retried"] = 3
    data["latency"]["p50"]["histogram"] = True
    data["weather"] = {"sun": True}
    assert placed_document.client_document(json.dumps(data).encode()) == document
    del data["requests"]["due"]
    with pytest.raises(MeasureError, match=r"another version than this command: requests\.due: missing"):
        placed_document.client_document(json.dumps(data).encode())
