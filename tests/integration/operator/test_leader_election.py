"""Two replicas: who writes, how leadership passes on, and what each of them answers. And: what goes on while none is there."""

import contextlib
import json
import signal
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from halcyon.kube import kinds
from tests.integration.operator_process import Operator, install
from tests.integration.operator_space import Space, deployment, files
from tests.integration.waiting import PATIENCE, always, rested, until

METRIC = "/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/queuedepth?labelSelector=serving.halcyon.dev%2Fmodel-deployment%3Dm"


@pytest.fixture
def start(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Callable[[str], Operator]]:
    system = install(cluster)
    with contextlib.ExitStack() as ending:  # ends each of them, also where one doesn't end in peace

        def started(name: str) -> Operator:
            operator = Operator(system, name, cluster.kubeconfig, tmp_path, watch=namespace)
            operator.start()
            ending.callback(operator.stop)
            return operator

        yield started
    cluster.api.call("DELETE", f"/api/v1/namespaces/{system}")


@pytest.fixture
def pair(start: Callable[[str], Operator]) -> tuple[Operator, Operator]:
    """The leader and a standby, both ready."""
    leader = start("op-a")
    leader.wait_leading()
    standby = start("op-b")
    standby.wait_ready()
    leader.wait_ready()
    assert standby.metrics()["halcyon_leader"] == 0
    return leader, standby


@pytest.fixture
def space(cluster: Cluster, namespace: str) -> Space:
    return Space(cluster.api, namespace)


def took(operator: Operator, limit_s: float) -> float:
    """Seconds until it leads."""
    began = time.monotonic()
    until(lambda: operator.metrics().get("halcyon_leader"), lambda n: n == 1, goal="it leads", limit_s=limit_s)
    return time.monotonic() - began


def test_a_leader_that_is_stopped_hands_over_within_2_s(pair: tuple[Operator, Operator], space: Space) -> None:
    leader, standby = pair
    space.serve()
    leader.signal(signal.SIGTERM)
    seconds = took(standby, 15)
    print(f"handed over in {seconds:.1f} s")  # noqa: T201  # the figure of the test
    assert leader.wait() == 0
    # A lease that can't be given back on a busy machine runs out.
    assert seconds <= 2 * PATIENCE or leader.logged("cannot release the lease"), leader.tail()
    space.scale(3)
    until(space.replicas, lambda n: n == 3, goal="the new leader works", limit_s=5)
    assert not standby.complaints(), standby.complaints()


def test_a_leader_that_is_killed_is_followed_within_15_s(pair: tuple[Operator, Operator], space: Space) -> None:
    leader, standby = pair
    space.serve()
    leader.signal(signal.SIGKILL)
    seconds = took(standby, 15)
    print(f"took over in {seconds:.1f} s")  # noqa: T201  # the figure of the test
    space.scale(3)
    until(space.replicas, lambda n: n == 3, goal="the new leader works", limit_s=5)


def test_a_leader_paused_past_its_lease_writes_no_more_and_ends(pair: tuple[Operator, Operator], space: Space) -> None:
    leader, standby = pair
    space.serve()
    # An Event is written after the status that it tells of. A request that was under way when it fell asleep can't be called back.
    rested(lambda: leader.metrics()["halcyon_api_writes_total"], for_s=1)
    leader.signal(signal.SIGSTOP)
    took(standby, 15)
    # Work for the one that sleeps: it must not do it, nor undo what the other has done.
    space.scale(3)
    until(space.replicas, lambda n: n == 3, goal="the new leader works", limit_s=5)
    space.wait_settled()
    # Kubernetes' own controllers write, too; and a status whose words alone have changed comes within 10 s.
    before = rested(space.versions, for_s=11)
    leader.signal(signal.SIGCONT)
    assert leader.wait(10 * PATIENCE) == 1
    assert "LeaseLost" not in leader.tail()
    assert leader.logged("the operator exits with an error")[0]["error"].startswith("lease ")
    always(space.versions, lambda now: now == before, goal="nothing is written", for_s=1)
    assert not standby.complaints(), standby.complaints()


def test_both_replicas_answer_the_metrics_api_for_authorized_callers_alone(
    pair: tuple[Operator, Operator], space: Space, cluster: Cluster
) -> None:
    space.serve(scaling={"maxReplicas": 3})
    space.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}})
    cluster.api.create(
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{space.namespace}/roles",
        {
            "metadata": {"name": "reader"},
            "rules": [{"apiGroups": ["external.metrics.k8s.io"], "resources": ["queuedepth"], "verbs": ["list"]}],
        },
    )
    good, bad = token(space, "reader"), token(space, "default")
    for replica in pair:
        assert metrics_response(replica, space, "")[0] == 401
        assert metrics_response(replica, space, "nonsense")[0] == 401
        assert metrics_response(replica, space, bad)[0] == 403
        assert metrics_response(replica, space, good)[0] == 403
    cluster.api.create(
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{space.namespace}/rolebindings",
        {
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": space.namespace}],
        },
    )
    for replica in pair:
        status, message = until(metrics_request(replica, space, good), lambda a: a[0] != 403, goal="the binding counts")
        # No agent runs here, so nothing is known; and that is what it says, not 0.
        assert status == 404
        assert "no balancer agent has reported yet" in message
        assert metrics_response(replica, space, bad)[0] == 403


def token(space: Space, account: str, audience: str | None = None, *, pod: str = "") -> str:
    """Return a token as the kubelet would get one; with an audience, it is bound to this pod, or to the first of the account."""
    path = kinds.SERVICE_ACCOUNT.path(space.namespace, account, "token")
    wish: dict[str, Any] = {"audiences": [audience]} if audience else {}
    if audience and (pods := sorted(pods_of_account(space, account))):
        wish["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": pod or pods[0]}
    answer = space.api.call("POST", path, {"spec": {"expirationSeconds": 600, **wish}})
    assert answer.status == 201, answer
    assert answer.body is not None
    return str(answer.body["status"]["token"])


def pods_of_account(space: Space, account: str) -> list[str]:
    """Return the names of the pods that run as this ServiceAccount."""
    return [
        str(pod["metadata"]["name"])
        for pod in space.every(kinds.POD)
        if pod["spec"].get("serviceAccountName") == account
    ]


def metrics_response(operator: Operator, space: Space, bearer: str) -> tuple[int, str]:
    """Status and message of the metrics API of one replica."""
    context = ssl.create_default_context()
    context.check_hostname = False  # it is made for the Service
    context.verify_mode = ssl.CERT_NONE
    request = urllib.request.Request(f"https://127.0.0.1:{operator.port}" + METRIC.format(namespace=space.namespace))
    if bearer:
        request.add_header("Authorization", f"Bearer {bearer}")
    try:
        with urllib.request.urlopen(request, timeout=5 * PATIENCE, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, str(json.loads(error.read())["message"])


def metrics_request(operator: Operator, space: Space, bearer: str) -> Callable[[], tuple[int, str]]:
    """`ask`, to be asked again."""
    return lambda: metrics_response(operator, space, bearer)


def test_children_go_with_a_model_deployment_deleted_while_no_operator_runs(
    start: Callable[[str], Operator], space: Space
) -> None:
    operator = start("op-a")
    space.serve(scaling={"maxReplicas": 3, "actuator": "HPA"})
    assert operator.stop() == 0
    space.delete(kinds.MODEL_DEPLOYMENT, "m")
    until(space.children, lambda left: not left, goal="the garbage collector has removed the children", limit_s=30)
    assert space.get(kinds.MODEL_DEPLOYMENT, "m") is None


def test_a_namespace_with_a_served_model_can_be_deleted(
    cluster: Cluster, start: Callable[[str], Operator], space: Space
) -> None:
    operator = start("op-a")
    space.serve(scaling={"maxReplicas": 3, "actuator": "HPA"})
    space.end()
    until(
        lambda: cluster.api.exists(f"/api/v1/namespaces/{space.namespace}"),
        lambda exists: not exists,
        goal="the namespace is gone",
        limit_s=60,
    )
    # What earlier tests have left is still being deleted, and that has the operator write.
    until(lambda: operator.metrics()["halcyon_model_deployments"], lambda n: n == 0, goal="no model is left")
    writes = operator.metrics()["halcyon_api_writes_total"]
    always(
        lambda: operator.metrics()["halcyon_api_writes_total"], lambda n: n == writes, goal="no write is tried", for_s=1
    )
    assert not operator.complaints(), operator.complaints()


def test_the_operator_comes_to_work_when_its_secret_comes_later(start: Callable[[str], Operator], space: Space) -> None:
    operator = start("op-a")
    system = Space(space.api, operator.namespace)
    system.delete(kinds.SECRET, "halcyon-tls")
    space.apply(files(), deployment())
    until(lambda: operator.logged("cannot refresh the certificates"), bool, goal="it says what lacks")
    assert "doesn't exist; the Helm chart creates it" in operator.logged("cannot refresh the certificates")[0]["error"]
    assert operator.fetch("/readyz") == ""
    space.api.create(kinds.SECRET.path(operator.namespace), {"metadata": {"name": "halcyon-tls"}})
    operator.wait_ready()
    space.wait_settled()
