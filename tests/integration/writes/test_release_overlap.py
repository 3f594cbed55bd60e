"""Two releases of real operators: beside each other, and on the same namespace."""

from pathlib import Path

from e2e.cluster.cluster import Cluster
from halcyon.kube import kinds
from tests.integration.operator_process import Operator, install
from tests.integration.operator_space import Space, deployment, files
from tests.integration.waiting import always, rested, until


def test_the_second_release_of_a_namespace_manages_it_after_the_first(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    space = Space(cluster.api, namespace)
    releases = [Operator(install(cluster), "op-0", cluster.kubeconfig, tmp_path, namespace) for _ in range(2)]
    first, second = releases
    try:
        first.start()
        first.wait_leading()
        space.apply(files(), deployment())
        space.wait_settled(limit_s=30)
        assert space.status()["operator"] == f"{first.namespace}/halcyon"

        second.start()
        second.wait_leading()
        message = space.wait_condition("OperatorConflict", "True", "ReleaseOverlap")
        assert f"{second.namespace}/halcyon also watches this namespace" in message
        (line,) = second.logged("another Helm release of Halcyon manages this model")
        assert line["release"] == f"{first.namespace}/halcyon"
        # The first goes on to manage the model, and the second writes nothing.
        space.apply(deployment(replicas=2))
        space.wait_settled(limit_s=30)
        before = rested(space.versions, for_s=2)
        always(space.versions, lambda now: now == before, goal="nothing is written", for_s=5)

        assert first.stop() == 0
        until(
            lambda: space.status().get("operator"),
            lambda named: named == f"{second.namespace}/halcyon",
            goal="the second release takes over",
            limit_s=60,
        )
        until(
            lambda: [c["type"] for c in space.must(kinds.MODEL_DEPLOYMENT, "m")["status"]["conditions"]],
            lambda types: "OperatorConflict" not in types,
            goal="the condition is removed",
        )
        space.wait_settled(limit_s=30)
        assert second.stop() == 0
    finally:
        for release in releases:
            release.stop()
            cluster.api.call("DELETE", f"/api/v1/namespaces/{release.namespace}")
