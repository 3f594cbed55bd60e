"""Starts of server pods on a real API server. Pods are KWOK's: they are ready soon after their creation, and have no log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from halcyon.kube import kinds
from halcyon_cli.bench.cold_start import start_watch
from halcyon_cli.kube.client import Target
from halcyon_cli.kube.object_writer import ObjectWriter
from halcyon_measure.breakdown import cold_start
from tests.integration.operator_process import Operator, running
from tests.integration.operator_space import Space

pytestmark = [pytest.mark.more, pytest.mark.usefixtures("operator")]


@pytest.fixture
def operator(cluster: Cluster, namespace: str, tmp_path: Any) -> Iterator[Operator]:
    """Start an operator for this namespace alone."""
    with running(cluster, tmp_path, watch=namespace) as started:
        yield started


def test_starts_are_watched_from_the_creation_of_each_pod(space: Space, cluster: Cluster, namespace: str) -> None:
    space.serve(replicas=1)
    writer = ObjectWriter(Target("bench", kubeconfig=cluster.kubeconfig, namespace=namespace))
    kept: list[int] = []
    starts = start_watch.watch(writer, "m", model="m", starts=3, timeout_s=60, keep=lambda: kept.append(1))
    assert len({start.pod for start in starts}) == 3
    for start in starts[1:]:
        assert start.bound is not None
        assert start.ready is not None
        assert start.created <= start.bound <= start.ready
    pod = space.must(kinds.POD, starts[-1].pod)
    created = datetime.fromisoformat(pod["metadata"]["creationTimestamp"]).timestamp()
    assert 0 <= starts[-1].created - created <= 1
    assert kept
    report = cold_start.build(starts)
    assert (report.starts, report.parts[0].mean.n) == (3, 3)
