"""Latency at many shares of the requests."""

from __future__ import annotations

import numpy as np
import pytest

from halcyon_measure.results import distribution, statistics
from halcyon_measure.results.durations import Durations
from tests.bench_documents import bench_document


def test_each_share_has_the_percentile_of_the_run() -> None:
    values = np.random.default_rng(1).gamma(2, 0.01, 5000)
    curve = distribution.of(Durations.of(values), Durations.of(values / 2))
    assert curve is not None
    for share, latency in zip(curve.shares, curve.latency_ms, strict=True):
        assert latency == pytest.approx(1000 * (statistics.percentile(values, share) or 0), abs=1e-4)
    assert curve.from_send_ms[-1] == pytest.approx(curve.latency_ms[-1] / 2, abs=1e-4)


def test_the_named_percentiles_are_among_the_shares() -> None:
    document = bench_document()
    assert document.distribution is not None
    known = dict(zip(document.distribution.shares, document.distribution.latency_ms, strict=True))
    assert known[0.99] == pytest.approx(document.latency.p99.value, abs=1e-4)
    assert known[0.999] == pytest.approx(document.latency.p99_9.value, abs=1e-4)


def test_no_answer_has_no_distribution() -> None:
    assert distribution.of(Durations.of(np.array([])), Durations.of(np.array([]))) is None
