"""A measurement of a served model in the cluster: its Events, also if it fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Self, cast

import click
import pytest

from halcyon_cli.bench.place import in_cluster
from halcyon_cli.bench.place.bench_request import BenchRequest
from halcyon_cli.bench.place.job_lease import PlaceError
from halcyon_cli.bench.records import live_event


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
