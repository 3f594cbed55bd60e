"""Capacity for a canary beside the only pod of a model."""

from __future__ import annotations

from typing import Any

from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon_cli.bench.canary.canary_pods import lacking_capacity
from halcyon_cli.errors import ClusterError
from tests.unit.cli.bench.canary.canary_models import model

CONTAINER = {"name": "triton", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}}
DEPLOYMENT = {
    "metadata": {"name": "m-a"},
    "spec": {"replicas": 1, "template": {"metadata": {"labels": {}}, "spec": {"containers": [CONTAINER]}}},
}
QUOTA = {
    "metadata": {"name": "small"},
    "spec": {"hard": {"requests.cpu": "3"}},
    "status": {"hard": {"requests.cpu": "3"}, "used": {"requests.cpu": "2"}},
}


class QuotaCluster:
    """A cluster with one server Deployment and one ResourceQuota."""

    namespace = "team"

    def items(self, kind: Kind, **_: Any) -> list[Any]:
        if kind == kinds.DEPLOYMENT:
            return [DEPLOYMENT]
        if kind == kinds.RESOURCE_QUOTA:
            return [QUOTA]
        raise ClusterError("no access")


def test_one_replica_needs_a_quota_for_a_second_pod() -> None:
    message = lacking_capacity(QuotaCluster(), model(replicas=1))  # type: ignore[arg-type]
    assert message.startswith("m has one replica, and a canary needs 1 server pod more, but")
    assert "small" in message
    assert "without --apply" in message


def test_several_replicas_give_a_pod_to_the_canary() -> None:
    assert lacking_capacity(QuotaCluster(), model(replicas=2)) == ""  # type: ignore[arg-type]
