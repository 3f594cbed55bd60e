"""Copies of objects while the API server can't be reached."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from halcyon.kube.kinds import POD
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube.object_caches import MAX_DELAY_S, ObjectCaches, Selection


def test_a_watch_is_retried_for_as_long_as_the_cluster_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unreachable:
        def listing(self, _kind: object, **_: object) -> None:
            if len(delays) == 1100:
                caches.stop()
            raise ClusterError("the cluster can't be reached")

    delays: list[float] = []
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    monkeypatch.setattr(time, "sleep", delays.append)
    caches = ObjectCaches(cast("Any", Unreachable()), {POD: Selection()})
    caches._keep(POD)
    assert len(delays) == 1101
    assert max(delays) == delays[-1] == MAX_DELAY_S
