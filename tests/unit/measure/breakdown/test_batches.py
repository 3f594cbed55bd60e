"""Batches of a run, and the line through their times."""

from __future__ import annotations

import pytest

from halcyon_measure.breakdown import batches
from halcyon_measure.results.observations import Counters, ServerConfig, SizeCounters, Statistics


def statistics(executions: dict[int, int], *, constant_s: float = 0.02, per_row_s: float = 0.002) -> Statistics:
    rows = sum(size * count for size, count in executions.items())
    sizes = {
        size: SizeCounters(count, 0, count * (constant_s + per_row_s * size), 0) for size, count in executions.items()
    }
    model_s = sum(size.model_s for size in sizes.values())
    return Statistics(Counters(rows, rows, sum(executions.values()), 0, 0, model_s, 0), sizes)


CONFIG = ServerConfig(largest_batch=32, instances=2)


def test_line_is_that_of_the_model() -> None:
    section = batches.build(statistics({1: 10, 8: 40, 32: 50}), CONFIG, wall_s=10, replicas=1, reason="")
    assert section.constant.value == pytest.approx(20)
    assert section.per_row.value == pytest.approx(2)
    assert section.line_error.value == pytest.approx(0, abs=1e-9)
    assert section.mean_rows.value == pytest.approx(19.3)
    assert section.fill.value == pytest.approx(19.3 / 32)
    assert section.busy.value == pytest.approx((10 * 0.022 + 40 * 0.036 + 50 * 0.084) / 20)


def test_one_size_gives_no_line_and_the_reason() -> None:
    section = batches.build(statistics({4: 10}), CONFIG, wall_s=10, replicas=1, reason="")
    assert section.constant.value is None
    assert section.constant.reason == "all executions had 4 rows; a line needs two sizes"
    assert section.busy.value is not None


def test_batches_without_statistics_have_their_reason() -> None:
    section = batches.build(None, ServerConfig(), wall_s=10, replicas=1, reason="the counters stand still")
    assert section.sizes == ()
    assert section.busy.reason == section.mean_rows.reason == "the counters stand still"
    assert section.largest.reason == "the model's configuration couldn't be read"
