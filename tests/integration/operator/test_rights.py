"""The operator with the rights that the chart gives it and no others, in both modes: they are enough, and none is too many.

Every call goes through a proxy that asks with the rights of the chart's ServiceAccount and notes what was asked. Agents are
imitated, as in test_direct_scaling; else nothing would be scaled or evicted.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.cluster.cluster import Cluster
from e2e.cluster.kubectl import Kubectl
from halcyon.api.documents.observation_report import AUDIENCE
from halcyon.kube import kinds
from tests.integration.autoscaling.test_direct_scaling import Agent, record, servers, until_then
from tests.integration.charts import Object, Values, render
from tests.integration.operator.test_leader_election import metrics_response, token
from tests.integration.operator_process import Operator, install
from tests.integration.operator_space import Space, batch_inference
from tests.integration.proxy import Door, Proxy, Request
from tests.integration.waiting import PATIENCE, until

pytestmark = pytest.mark.more

ROLES = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "APIService")
OPTIONAL: Values = {"networkPolicies": {"models": {"create": True}}}
WALLED = '{"operator": [{"podSelector": {}}]}'
"""The same for the operator: who is named in its policies is not of interest here."""
SELECTED = "--selector=app.kubernetes.io/name=halcyon"

Call = tuple[str, str, str, str]
"""Where (`own`: the operator's namespace; `models`: elsewhere), API group, resource with subresource, verb."""

NOT_DRIVEN = {
    ("models", "", "configmaps", "delete"): "of a configuration that no revision names any more",
    ("models", "apps", "controllerrevisions", "delete"): "of an eleventh revision",
    **{
        ("models", "discovery.k8s.io", "endpointslices", verb): "held to be granted to agents"
        for verb in ("list", "watch")
    },
    **{
        ("models", "gateway.networking.k8s.io", routes, verb): "where the Gateway API is, and a model names a Gateway"
        for routes in ("httproutes", "grpcroutes")
        for verb in ("get", "list", "watch", "create", "patch", "delete")
    },
    **{
        ("own", "", "configmaps", verb): "of memories, every ten minutes"
        for verb in ("create", "delete", "get", "patch")
    },
}
"""What the chart grants and this test doesn't make the operator do, and when it would. All else must be seen."""
OF_OTHERS = {("models", "coordination.k8s.io", "leases", "get")}
"""What the Role NAME-lease of other releases grants: earlier tests leave models of theirs on this API server."""


@dataclass(frozen=True)
class Installed:
    operator: Operator
    space: Space
    door: Door
    objects: list[Object]


@pytest.fixture(scope="module")
def proxy(cluster: Cluster) -> Iterator[Proxy]:
    with Proxy(cluster.api.identity) as running:
        yield running


@pytest.fixture(params=["cluster", "namespaced"])
def installed(
    request: pytest.FixtureRequest, cluster: Cluster, namespace: str, proxy: Proxy, tmp_path: Path
) -> Iterator[Installed]:
    system = install(cluster)
    other = f"{namespace}-other"
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": other}})
    kubectl = Kubectl(programs=cluster.bin, kubeconfig=cluster.kubeconfig)
    try:
        values: Values = {} if request.param == "cluster" else {"watchNamespaces": [namespace, other]}
        values |= OPTIONAL
        objects = [o for o in render(values, namespace=system) if o["kind"] in ROLES]
        kubectl.apply(*objects)
        door = proxy.open(account=f"{system}:halcyon")
        operator = Operator(
            system,
            "op-0",
            door.kubeconfig,
            tmp_path,
            watch=",".join(values.get("watchNamespaces", [])),
            more=(f"--network-policies={WALLED}", "--bench-image=localhost/halcyon-bench:dev"),
        )
        operator.start()
        try:
            operator.wait_leading()
            yield Installed(operator, Space(cluster.api, namespace), door, objects)
        finally:
            operator.stop()
    finally:
        kubectl("delete", "clusterrole,clusterrolebinding,apiservice", SELECTED)
        kubectl("delete", "rolebinding", SELECTED, "--namespace=kube-system")
        for name in (system, other):
            cluster.api.call("DELETE", f"/api/v1/namespaces/{name}")


def granted(objects: list[Object]) -> set[Call]:
    """What the roles allow."""
    calls: set[Call] = set()
    for role in objects:
        if role["kind"] not in {"Role", "ClusterRole"} or role["metadata"]["name"] not in {"halcyon", "halcyon-models"}:
            continue
        scope = "own" if role["metadata"]["name"] == "halcyon" and role["kind"] == "Role" else "models"
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    calls |= {(scope, group, resource, verb) for verb in rule["verbs"]}
    return calls


def called(door: Door, system: str, allowed: set[Call]) -> set[Call]:
    """What was asked for and answered; a patch that made the object is a `create` too."""
    of_its_own = {(group, resource) for scope, group, resource, _ in allowed if scope == "own"}
    calls: set[Call] = set()
    for request, status in tuple(door.answered):
        parts = request.path.strip("/").split("/")
        if parts[0] not in {"api", "apis"} or not request.resource:
            continue  # what kinds there are, and keys: every account may read that
        group = "" if parts[0] == "api" else parts[1]
        plural, _, rest = request.target.partition("/")
        name, _, subresource = rest.partition("/")
        resource = f"{plural}/{subresource}" if subresource else plural
        own = request.namespace == system and (group, plural) in of_its_own
        verb = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}.get(request.method, _reading(request, name))
        calls.add(("own" if own else "models", group, resource, verb))
        if verb == "patch" and status == 201:
            calls.add(("own" if own else "models", group, resource, "create"))
    return calls


def _reading(request: Request, name: str) -> str:
    return "watch" if request.watching else "get" if name else "list"


def forbidden(installed: Installed) -> list[str]:
    """Answers that the rights were too few for; namespaces that are being deleted forbid writing to everyone."""
    return [
        f"{request.method} {request.path}"
        for request, status in installed.door.answered
        if status == 403
        and request.namespace in {"", "kube-system", installed.space.namespace, installed.operator.namespace}
    ]


async def drive(installed: Installed) -> None:
    """Everything that an operator does to a model in its life."""
    operator, space = installed.operator, installed.space
    operator.wait_ready()
    space.serve(scaling={"maxReplicas": 3, "actuator": "HPA"})
    until(space.events, bool, goal="events are written")

    space.serve(scaling={"maxReplicas": 9, "policy": "Rules", "actuator": "Direct", "targets": {"queueDepth": 10}})
    until(lambda: space.get(kinds.HPA, "m"), lambda hpa: hpa is None, goal="the HPA that is no longer wanted goes")
    async with Agent(operator, space, token(space, "m-balancer", AUDIENCE)) as stream:
        await until_then(space, 2, stream, queued=20)
        dead = servers(space)[0]
        # It is replaced after two restarts, which take 20 s each because no kubelet does them.
        end = time.monotonic() + 90 * PATIENCE
        while dead in servers(space):
            assert time.monotonic() < end, space.status()
            report = json.loads(record(space))
            for pod in report["pods"]:
                pod["state"] = "maintenance" if pod["name"] == dead else "ready"
            await stream.send_str(json.dumps(report))
            await asyncio.sleep(0.3)
    space.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}},
        {
            "apiVersion": kinds.ROLE.api_version,
            "kind": "Role",
            "metadata": {"name": "reader"},
            "rules": [{"apiGroups": ["external.metrics.k8s.io"], "resources": ["queuedepth"], "verbs": ["list"]}],
        },
        {
            "apiVersion": kinds.ROLE_BINDING.api_version,
            "kind": "RoleBinding",
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": space.namespace}],
        },
    )
    assert metrics_response(operator, space, token(space, "default"))[0] == 403
    reader = token(space, "reader")
    until(
        lambda: metrics_response(operator, space, reader)[0],
        lambda status: status in {200, 404},
        goal="a reader is answered",
    )

    job = kinds.JOB, "night-batch"
    space.apply(batch_inference())
    first = until(lambda: space.get(*job), bool, goal="a runner is made", limit_s=30)
    space.apply(batch_inference(suspend=True))
    until(lambda: space.must(*job)["spec"]["suspend"], bool, goal="the runner is paused")
    space.apply(batch_inference(maxFailures=5))
    until(
        lambda: (space.get(*job) or first)["metadata"]["uid"] != (first or {})["metadata"]["uid"],
        bool,
        goal="the runner is replaced",
    )

    space.serve(traffic={"mode": "Direct"})
    until(lambda: space.get(kinds.ROLE, "m-balancer"), lambda role: role is None, goal="the balancer's role goes")
    space.serve()


async def test_the_charts_roles_are_what_the_operator_needs_and_no_more(installed: Installed) -> None:
    await drive(installed)

    assert installed.operator.stop() == 0
    assert forbidden(installed) == []
    assert installed.operator.complaints() == []
    system = installed.operator.namespace
    allowed = granted(installed.objects)
    used = called(installed.door, system, allowed)
    assert used - OF_OTHERS <= allowed
    assert sorted(allowed - used - NOT_DRIVEN.keys()) == [], "granted and never used: take it out of the chart"
