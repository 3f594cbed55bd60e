"""The rights of a balancer's agent on a real API server, beside a real HAProxy: all are used, none is missing, and what lacks is told.

The fetcher and the servers have no token and so no rights: tests/forbidden.py looks for one in every pod that is rendered.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from e2e.cluster.cluster import Cluster
from e2e.cluster.kubectl import Kubectl
from halcyon.render import balancer
from halcyon.render.site import Subject
from tests.integration.balanced import PLAN, Balanced, Process, RealApi, agent, is_, new_balanced, until
from tests.integration.operator.test_rights import called
from tests.integration.proxy import Door, Proxy
from tests.integration.waiting import PATIENCE

pytestmark = pytest.mark.more

ACCOUNT = "m-balancer"
GRANTED = {
    ("models", "", "configmaps", "list"),
    ("models", "", "configmaps", "watch"),
    ("models", "discovery.k8s.io", "endpointslices", "list"),
    ("models", "discovery.k8s.io", "endpointslices", "watch"),
}


@pytest.fixture(scope="module")
def proxy(cluster: Cluster) -> Iterator[Proxy]:
    with Proxy(cluster.api.identity) as running:
        yield running


class Place:
    """A namespace with the agent's account, its rights, and a slot's endpoints; pods and operator aren't there."""

    def __init__(self, kubectl: Kubectl, namespace: str) -> None:
        self._kubectl = kubectl
        self.namespace = namespace
        self.subject = Subject(namespace, "m", "")

    def make(self) -> None:
        slices = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "m-server-a-1", "labels": {"kubernetes.io/service-name": "m-server-a"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.9.9.9"], "conditions": {"ready": True}, "targetRef": {"kind": "Pod", "name": "p"}}],
            "ports": [],
        }  # fmt: skip
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}
        self._kubectl.apply(account, slices, plain(balancer.role_binding(self.subject)))
        self.grant()

    def grant(self, *, without: tuple[str, str] | None = None) -> None:
        """The role as it is rendered; `without` is a resource and a verb of it."""
        role = plain(balancer.role(self.subject))
        for rule in role["rules"]:
            rule["verbs"] = [verb for verb in rule["verbs"] if (rule["resources"][0], verb) != without]
        self._kubectl.apply(role)

    def put(self, text: str) -> None:
        plan = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": ACCOUNT}, "data": {"plan.json": text}}
        self._kubectl.apply(plan)


def plain(obj: dict[str, Any]) -> dict[str, Any]:
    """Without an owner, which there isn't."""
    meta = {k: v for k, v in obj["metadata"].items() if k != "ownerReferences"}
    return {**obj, "metadata": meta}


@pytest.fixture
def place(kubectl: Kubectl, namespace: str) -> Place:
    created = Place(kubectl, namespace)
    created.make()
    return created


@dataclass
class Working:
    """An agent that asks through a door."""

    door: Door
    process: Process
    balanced: Balanced

    async def begin(self) -> None:
        """HAProxy runs what the agent has written, and is ready."""
        await until(lambda: self.process.is_("/healthz", 200), 20)
        await asyncio.to_thread(self.balanced.haproxy.start)
        await until(lambda: self.process.is_("/readyz", 200), 20)

    def trouble(self) -> str:
        """What the agent's last record says that it can't do."""
        records = self.process.collectors[0].records
        return records[-1][1].balancer.problem if records and records[-1][1].balancer else ""


@asynccontextmanager
async def working(proxy: Proxy, place: Place, tmp_path: Path) -> AsyncIterator[Working]:
    """With the rights that the account has; HAProxy isn't begun."""
    door = proxy.open(account=f"{place.namespace}:{ACCOUNT}")
    server = yaml.safe_load(door.kubeconfig.read_text())["clusters"][0]["cluster"]
    address = urlsplit(server["server"])
    ca = base64.b64decode(server["certificate-authority-data"]).decode()
    api = RealApi(address.hostname or "", address.port or 0, ca, place.namespace, place.put)
    plan = replace(PLAN, namespace=place.namespace)
    async with new_balanced() as balanced, agent(balanced, tmp_path, metrics_port=8002, plan=plan, real=api) as process:
        yield Working(door, process, balanced)


async def test_the_role_grants_exactly_the_requests_of_the_agent(proxy: Proxy, place: Place, tmp_path: Path) -> None:
    async with working(proxy, place, tmp_path) as run:
        await run.begin()
        await until(lambda: is_(lambda: called(run.door, "", set()) >= GRANTED), 20)
        watches = sum(request.watching for request in run.door.seen)
        run.door.drop_streams()
        await until(lambda: is_(lambda: sum(request.watching for request in run.door.seen) >= watches + 2), 20)
    rules = balancer.role(place.subject)["rules"]
    granted = {("models", rule["apiGroups"][0], rule["resources"][0], verb) for rule in rules for verb in rule["verbs"]}
    assert granted == GRANTED
    assert called(run.door, "", set()) == granted
    assert [status for _, status in run.door.answered if status == 403] == []


@pytest.mark.parametrize("resource", ["configmaps", "endpointslices"])
async def test_a_missing_right_is_reported_until_it_returns_and_serving_goes_on(
    proxy: Proxy, place: Place, tmp_path: Path, resource: str
) -> None:
    async with working(proxy, place, tmp_path) as run:
        await run.begin()
        assert run.trouble() == ""
        place.grant(without=(resource, "watch"))
        lacks = f'cannot watch resource "{resource}" in API group'
        end = time.monotonic() + 20 * PATIENCE
        while lacks not in run.trouble():
            assert time.monotonic() < end, run.trouble()
            # The API server's authorizer hears of a Role a moment later: a watch that came back before that stays.
            run.door.drop_streams(resource)
            await asyncio.sleep(2)
        assert run.trouble().endswith(f"Role {ACCOUNT} must grant it")
        assert await run.process.is_("/readyz", 200)
        assert b"halcyon_agent_degraded 1" in (await run.process.probe("/metrics"))[1]
        place.grant()
        await until(lambda: is_(lambda: run.trouble() == ""), 60)


FIRST = {
    "configmaps": ("/healthz", "the plan has not been read yet"),
    "endpointslices": ("/readyz", "EndpointSlices have not been read yet"),
}
"""What lacks without it: the probe that tells, and its words."""


@pytest.mark.parametrize("resource", FIRST)
async def test_an_agent_without_rights_at_its_start_reports_that_and_ends(
    proxy: Proxy, place: Place, tmp_path: Path, resource: str
) -> None:
    page, says = FIRST[resource]
    place.grant(without=(resource, "list"))
    async with working(proxy, place, tmp_path) as run:
        if resource == "endpointslices":
            await until(lambda: run.process.is_("/healthz", 200), 20)
            await asyncio.to_thread(run.balanced.haproxy.start)

        async def reported() -> bool:
            status, body = await run.process.probe(page)
            return status == 503 and f'cannot list resource "{resource}"' in body.decode() and says in body.decode()

        await until(reported, 9)
        # The kubelet starts it again, and its pod's status has the reason: tests/unit/control/status/test_status.py.
        assert await asyncio.wait_for(run.process.process.wait(), 30) == 1
