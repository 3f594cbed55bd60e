"""Events of measurements of a served model, as they are written and shown."""

from __future__ import annotations

from datetime import UTC, datetime

import kubernetes_validate

from halcyon_cli.bench.records.live_event import event
from halcyon_cli.kube.bench_events import summaries

MODEL = {"metadata": {"name": "digits", "namespace": "team", "uid": "u-1"}}
NOW = datetime(2026, 11, 28, 10, 0, tzinfo=UTC)


def test_events_are_valid_and_shown_with_the_newest_first() -> None:
    began = event(MODEL, now=NOW, began=True)
    ended = event(MODEL, now=NOW, began=False, ended="at 40 requests/s, p95 was 110.0 ms")
    for obj in (began, ended):
        kubernetes_validate.validate(obj, "1.31", strict=True)
    assert summaries([{"reason": "Scaled"}, began, ended]) == [
        ("BenchEnded", "2026-11-28T10:00:00Z: halcyon bench --live has ended: at 40 requests/s, p95 was 110.0 ms"),
        (
            "BenchStarted",
            "2026-11-28T10:00:00Z: halcyon bench --live sends requests to this model, in steps of a rising rate",
        ),
    ]
