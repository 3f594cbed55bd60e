"""The charts on a real API server: every object is taken, upgrades and uninstalls leave what is not theirs.

No pod runs here, so nothing waits for the operator; the scenarios do.
"""

import json
import uuid
from collections.abc import Iterator
from subprocess import CompletedProcess
from typing import Any

import pytest

from e2e import keda
from e2e.cluster.cluster import Cluster
from e2e.cluster.kubectl import Kubectl
from halcyon.kube import kinds
from halcyon.main import main
from tests.integration.charts import (
    API_SERVICE,
    CHART,
    CRD_NAME,
    CRDS_CHART,
    LOCAL,
    MONITORING,
    SETS,
    Object,
    Values,
    helm,
    laid_over,
    render,
)
from tests.integration.operator_process import CRD_PATH, install
from tests.integration.operator_space import MERGE, Space, deployment, files

pytestmark = pytest.mark.more

API_SERVICE_PATH = kinds.API_SERVICE.path("", API_SERVICE)
FOREIGN = keda.api_service()


@pytest.fixture
def system(cluster: Cluster) -> Iterator[str]:
    """A namespace to install into, in a cluster that has the CRD."""
    name = install(cluster)
    cluster.api.call("DELETE", kinds.SECRET.path(name, "halcyon-tls"))
    yield name
    cluster.api.call("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def do(cluster: Cluster, system: str) -> Iterator[Any]:
    """Helm on the cluster: `do("install", "halcyon", ...)`. The release is gone at the end."""

    def run(*args: str, values: Values | None = None) -> CompletedProcess[str]:
        kubeconfig = str(cluster.kubeconfig)
        return helm(*args, "--namespace", system, values=values, kubeconfig=kubeconfig)

    yield run
    run("uninstall", "halcyon", "--ignore-not-found")


def succeeded(done: CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def body(cluster: Cluster, path: str) -> Object:
    answer = cluster.api.call("GET", path)
    assert answer.status == 200, (path, answer)
    assert answer.body is not None
    return answer.body


def cluster_roles(cluster: Cluster) -> list[Object]:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles?labelSelector=app.kubernetes.io/name=halcyon"
    items: list[Object] = body(cluster, path)["items"]
    return items


@pytest.mark.parametrize("name", ["everything", "namespaced"])
def test_the_api_server_takes_every_object(cluster: Cluster, system: str, name: str) -> None:
    for team in ("team-a", "team-b"):
        cluster.api.create("/api/v1/namespaces", {"metadata": {"name": team}})
    kubectl = Kubectl(programs=cluster.bin, kubeconfig=cluster.kubeconfig)
    objects = [o for o in render(SETS[name], namespace=system, flags=()) if o["apiVersion"] != MONITORING]
    document = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    # With --validate=strict a field that the API server doesn't know is an error.
    flags = ("--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts")
    kubectl("apply", *flags, "--filename=-", stdin=document)


def test_another_owners_metrics_api_is_kept_and_the_notes_say_so(cluster: Cluster, do: Any) -> None:
    cluster.api.create(kinds.API_SERVICE.path(), FOREIGN)
    try:
        before = body(cluster, API_SERVICE_PATH)["metadata"]["uid"]
        notes = succeeded(do("install", "halcyon", str(CHART), "--take-ownership", values=LOCAL))
        assert "external.metrics.k8s.io belongs to another owner and is left unchanged" in notes
        assert "actuator Direct" in notes
        granted = [
            rule["verbs"]
            for rule in body(cluster, "/apis/rbac.authorization.k8s.io/v1/clusterroles/halcyon")["rules"]
            if rule["resources"] == ["apiservices"]
        ]
        assert granted == [["get"]]

        forced = do("upgrade", "halcyon", str(CHART), values=laid_over(LOCAL, {"metricsAPI": {"register": True}}))
        assert forced.returncode != 0
        assert API_SERVICE in forced.stderr

        succeeded(do("uninstall", "halcyon"))
        assert body(cluster, API_SERVICE_PATH)["metadata"]["uid"] == before
    finally:
        cluster.api.call("DELETE", API_SERVICE_PATH)


def test_the_switch_of_the_site_belongs_to_the_release(cluster: Cluster, system: str, do: Any) -> None:
    succeeded(do("install", "halcyon", str(CHART), "--take-ownership", values=LOCAL))
    site = ["--site", "-n", system, "--kubeconfig", str(cluster.kubeconfig)]
    path = kinds.CONFIG_MAP.path(system, "halcyon-switches")
    older = {"metadata": {"name": "halcyon-switches"}}  # as an older halcyon created it
    cluster.api.create(kinds.CONFIG_MAP.path(system), older)
    assert main(["pause", *site, "--reason", "by hand"]) == 0
    assert body(cluster, path)["data"] == {"holdScaleDown": "by hand"}
    assert main(["resume", *site]) == 0
    for reason in ("incident 1", "incident 2"):
        succeeded(do("upgrade", "halcyon", str(CHART), values=laid_over(LOCAL, {"holdScaleDown": reason})))
        assert body(cluster, path)["data"] == {"holdScaleDown": reason}
        assert main(["resume", *site]) == 0
        assert "holdScaleDown" not in (body(cluster, path).get("data") or {})
    succeeded(do("upgrade", "halcyon", str(CHART), values=LOCAL))
    assert cluster.api.call("GET", path).status == 404
    assert main(["resume", *site]) == 0
    assert cluster.api.call("GET", path).status == 404


def test_upgrades_and_uninstalls_leave_what_is_not_the_charts(cluster: Cluster, system: str, do: Any) -> None:
    notes = succeeded(do("install", "halcyon", str(CHART), "--take-ownership", values=LOCAL))
    assert "served by this release (actuator HPA)" in notes
    space = Space(cluster.api, system)
    space.apply(files(), deployment())
    # What the operator writes.
    secret = kinds.SECRET.path(system, "halcyon-tls")
    for path, patch in ((API_SERVICE_PATH, {"spec": {"caBundle": "QUFB"}}), (secret, {"data": {"tls.crt": "QUFB"}})):
        assert cluster.api.call("PATCH", path, patch, content_type=MERGE).status == 200

    succeeded(do("upgrade", "halcyon", str(CHART), values=laid_over(LOCAL, {"logLevel": "debug"})))

    assert "--log-level=debug" in json.dumps(space.must(kinds.DEPLOYMENT, "halcyon"))
    assert body(cluster, API_SERVICE_PATH)["spec"]["caBundle"] == "QUFB"
    assert body(cluster, secret)["data"] == {"tls.crt": "QUFB"}

    succeeded(do("uninstall", "halcyon"))

    assert cluster.api.call("GET", API_SERVICE_PATH).status == 404
    space.must(kinds.MODEL_DEPLOYMENT, "m")
    assert body(cluster, CRD_PATH)["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    left = [
        kind.kind
        for kind in (kinds.DEPLOYMENT, kinds.SERVICE, kinds.SECRET, kinds.ROLE, kinds.ROLE_BINDING, kinds.PDB)
        for obj in space.every(kind)
        if (obj["metadata"].get("labels") or {}).get("app.kubernetes.io/managed-by") == "Helm"
    ]
    assert left == []
    assert cluster_roles(cluster) == []


def test_crds_of_a_chart_of_their_own_are_left_by_the_operators(cluster: Cluster, do: Any) -> None:
    succeeded(do("install", "crds", str(CRDS_CHART), "--take-ownership"))
    try:
        both = do("install", "halcyon", str(CHART), values=LOCAL)
        assert both.returncode != 0
        assert CRD_NAME in both.stderr
        without = laid_over(LOCAL, {"crds": {"install": False}})
        notes = succeeded(do("upgrade", "--install", "halcyon", str(CHART), values=without))
        assert "- the CRD" not in notes
    finally:
        succeeded(do("uninstall", "crds"))
    assert body(cluster, CRD_PATH)["metadata"]["annotations"]["meta.helm.sh/release-name"] == "crds"


def test_two_releases_for_different_namespaces_stand_side_by_side(cluster: Cluster, do: Any) -> None:
    teams = [f"team-{uuid.uuid4().hex[:6]}" for _ in range(2)]
    for team in teams:
        cluster.api.create("/api/v1/namespaces", {"metadata": {"name": team}})
    releases = {f"halcyon-{team}": team for team in teams}
    try:
        for release, team in releases.items():
            namespaced = laid_over(LOCAL, {"watchNamespaces": [team], "crds": {"install": False}})
            succeeded(do("install", release, str(CHART), values=namespaced))
            assert [r["metadata"]["name"] for r in Space(cluster.api, team).every(kinds.ROLE)] == [f"{release}-models"]
        assert cluster_roles(cluster) == []
    finally:
        for release, team in releases.items():
            do("uninstall", release, "--ignore-not-found")
            cluster.api.call("DELETE", f"/api/v1/namespaces/{team}")
