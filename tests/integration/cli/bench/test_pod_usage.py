"""Requests for the usage of pods to metrics.k8s.io, answered by a recorded document of metrics-server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from halcyon_cli.bench.readings.pod_usage import UsageLog
from halcyon_cli.kube.client import Cluster, Target
from tests.unit.cli import stand_in_api
from tests.unit.cli.bench.readings.test_pod_usage import RECORDED

PATH = "/apis/metrics.k8s.io/v1beta1/namespaces/team/pods"


def cluster(url: str, folder: Path) -> Cluster:
    config = {
        "current-context": "c", "users": [{"name": "u", "user": {}}], "clusters": [{"name": "c", "cluster": {"server": url}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
    }  # fmt: skip
    (folder / "config").write_text(json.dumps(config))
    return Cluster(Target("bench", kubeconfig=folder / "config"))


def test_the_api_is_asked_for_the_copys_pods_every_few_seconds(tmp_path: Path) -> None:
    with stand_in_api.serving() as api:
        api.answers[PATH] = (200, RECORDED)
        reader, read = cluster(api.url, tmp_path), UsageLog()
        for now in (0.0, 1.0, 4.9, 5.0):
            read.read(reader, ("digits-bench", "other-bench"), now)
    paths = [path for _, path in api.requests if path.startswith(PATH)]
    assert len(paths) == 2
    assert "model-deployment+in+%28digits-bench%2Cother-bench%29" in paths[0]
    # The same window twice counts once.
    assert len(read.usages) == 3
    assert read.reason == ""


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((404, stand_in_api.ABSENT), "the cluster has no metrics.k8s.io; metrics-server serves it"),
        (stand_in_api.failure(403, "forbidden"), "metrics.k8s.io can't be read: "),
        (stand_in_api.failure(503, "the server is currently unable"), "metrics.k8s.io can't be read: "),
    ],
)
def test_an_api_without_an_answer_is_a_reason(answer: tuple[int, Any], reason: str, tmp_path: Path) -> None:
    with stand_in_api.serving() as api:
        api.answers[PATH] = answer
        read = UsageLog()
        read.read(cluster(api.url, tmp_path), ("digits-bench",), 0.0)
    assert read.reason.startswith(reason)
    assert not read.usages
