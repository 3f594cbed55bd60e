"""The operator with the rights that the chart gives it and no others: everything but evictions and /scale."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e.cluster.cluster import Cluster
from e2e.cluster.kubectl import Kubectl
from halcyon.control import kinds
from tests.integration.operator_process import Operator, install
from tests.integration.operator_space import Space
from tests.integration.test_chart import Object, render
from tests.integration.test_operator_election import token
from tests.integration.waiting import until

ROLES = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


@pytest.fixture
def operator(cluster: Cluster, tmp_path: Path) -> Iterator[Operator]:
    system = install(cluster)
    try:
        roles: list[Object] = [o for o in render(namespace=system) if o["kind"] in ROLES]
        kubectl = Kubectl(programs=cluster.bin, kubeconfig=cluster.kubeconfig)
        kubectl.apply(*roles)
        config = yaml.safe_load(cluster.kubeconfig.read_text())
        config["users"] = [{"name": u["name"], "user": {}} for u in config["users"]]
        config["users"][0]["user"] = {"token": token(Space(cluster.api, system), "halcyon")}
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(config))
        made = Operator(system, "op-0", kubeconfig, tmp_path)
        made.start()
        made.wait_leading()
        try:
            yield made
        finally:
            made.stop()
            kubectl("delete", "clusterrole,clusterrolebinding", "--selector=app.kubernetes.io/name=halcyon")
    finally:
        cluster.api.call("DELETE", f"/api/v1/namespaces/{system}")


def test_the_charts_roles_are_enough_to_serve_a_model_and_to_change_it(operator: Operator, space: Space) -> None:
    operator.wait_ready()
    space.serve(scaling={"maxReplicas": 3, "actuator": "HPA"})
    until(space.events, bool, what="events are written")
    space.serve(batching={"maxBatchSize": 4})
    until(lambda: space.get(kinds.HPA, "m"), lambda hpa: hpa is None, what="the HPA that is no longer wanted goes")

    assert operator.stop() == 0
    # In namespaces of other tests, which are being deleted, writing is forbidden for everyone; that is worded otherwise.
    assert [line for line in operator.lines() if "forbidden: user" in str(line).lower()] == []
    assert operator.complaints() == []
