"""A write reaches the object that was seen, or none: on the real API server, by the client and by a real operator."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from e2e.cluster import pki
from e2e.cluster.cluster import Cluster
from halcyon.kube import encoding, errors, kinds
from halcyon.kube.client import FIELD_MANAGER, KubeClient, connect
from halcyon.kube.http_transport import UNACKNOWLEDGED_S
from halcyon.kube.kinds import CHILDREN, OPTIONAL, WITH_STATUS, Kind
from tests.integration.operator_process import Operator, install
from tests.integration.operator_space import Object, Space, deployment, files
from tests.integration.proxy import Answer, Door, Fault, Proxy, Request
from tests.integration.waiting import always, until

POD: Object = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "localhost/none"}]}}
ROLE_REF = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a"}
SPECS: dict[str, Object] = {
    "Deployment": {"spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": POD}},
    "ControllerRevision": {"revision": 1, "data": {"a": "b"}},
    "Service": {"spec": {"ports": [{"port": 80}]}},
    "ConfigMap": {"data": {"a": "b"}},
    "ServiceAccount": {},
    "Role": {"rules": []},
    "RoleBinding": {"roleRef": ROLE_REF, "subjects": []},
    "HorizontalPodAutoscaler": {
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}, "maxReplicas": 2}
    },
    "PodDisruptionBudget": {"spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"a": "b"}}}},
    "NetworkPolicy": {"spec": {"podSelector": {}}},
}
"""A valid object of each kind that the operator makes."""


def child(kind: Kind, namespace: str, **annotations: str) -> Object:
    """An object of this kind."""
    meta = {"namespace": namespace, "name": "a", "annotations": annotations}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, **SPECS[kind.kind]}


async def conflicts(write: Any) -> None:
    with pytest.raises(errors.Conflicted):
        await write


def test_every_kind_is_created_once_and_changed_only_as_it_was_seen(cluster: Cluster, namespace: str) -> None:
    async def each(client: KubeClient, kind: Kind) -> None:
        deleted = await client.apply(kind, encoding.creating(child(kind, namespace)))
        await conflicts(client.apply(kind, encoding.creating(child(kind, namespace, b="c"))))
        deleted = await client.apply(kind, encoding.changing(child(kind, namespace, b="d"), deleted, versioned=False))
        await client.delete(kind, namespace, "a")
        await conflicts(client.apply(kind, encoding.changing(child(kind, namespace), deleted, versioned=False)))

        # What somebody else made since has neither its uid nor its version.
        theirs = await client.apply(kind, child(kind, namespace, theirs="1"), manager="other")
        await conflicts(client.apply(kind, encoding.creating(child(kind, namespace))))
        for versioned in (False, True):
            await conflicts(client.apply(kind, encoding.changing(child(kind, namespace), deleted, versioned=versioned)))
        await conflicts(client.delete(kind, namespace, "a", seen=deleted))
        current = await client.get(kind, namespace, "a") or {}
        assert current["metadata"]["uid"] == theirs["metadata"]["uid"]
        assert not any(entry["manager"] == FIELD_MANAGER for entry in current["metadata"]["managedFields"])

        # A change since is in the way of a write that has a version, and of a deletion.
        versioned = kind not in WITH_STATUS
        ours = await client.apply(kind, encoding.changing(child(kind, namespace, b="e"), theirs, versioned=versioned))
        if versioned:
            await conflicts(
                client.apply(kind, encoding.changing(child(kind, namespace, b="f"), theirs, versioned=True))
            )
        await conflicts(client.delete(kind, namespace, "a", seen=theirs))
        # A field that is left out goes, as after an apply without conditions.
        bare = await client.apply(kind, encoding.changing(child(kind, namespace), ours, versioned=False))
        assert "b" not in bare["metadata"].get("annotations", {})
        # Its own controller writes the status of some at any time.
        await client.delete(kind, namespace, "a", seen=None if kind in WITH_STATUS else bare)

    async def scenario() -> None:
        client = await connect(str(cluster.kubeconfig))
        try:
            for kind in (*CHILDREN, *OPTIONAL):
                await each(client, kind)
            port = urlsplit(cluster.api.identity.url).port
            assert timeouts(port) == {int(UNACKNOWLEDGED_S * 1000)}
        finally:
            await client.close()

    asyncio.run(scenario())


def timeouts(port: int | None) -> set[int]:
    """TCP_USER_TIMEOUT of each connection of this process to a port that has any."""
    milliseconds = set()
    for path in Path("/proc/self/fd").iterdir():
        try:
            if not path.is_socket():
                continue
            with socket.socket(fileno=os.dup(int(path.name))) as connection:
                if connection.family in {socket.AF_INET, socket.AF_INET6} and connection.getpeername()[1] == port:
                    milliseconds.add(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
        except OSError:
            continue
    return milliseconds - {0}


def test_kinds_with_a_status_are_those_of_the_api_server(cluster: Cluster) -> None:
    """By the API server's own documents."""
    with_status = set()
    for kind in (*CHILDREN, *OPTIONAL):
        root = kind.path().rpartition("/")[0]
        listed = cluster.api.call("GET", root).body["resources"]  # type: ignore[index]
        if any(resource["name"] == f"{kind.plural}/status" for resource in listed):
            with_status.add(kind)
    assert with_status == WITH_STATUS & {*CHILDREN, *OPTIONAL}


@pytest.fixture(scope="module")
def proxy(cluster: Cluster) -> Iterator[Proxy]:
    with Proxy(pki.admin(cluster.place, cluster.network)) as started:
        yield started


def start(cluster: Cluster, door: Door, directory: Path, watch: str) -> Operator:
    operator = Operator(install(cluster), "op-0", door.kubeconfig, directory, watch)
    operator.start()
    operator.wait_leading()
    return operator


SERVICE = {"metadata": {"name": "m"}, "spec": {"selector": {"theirs": "1"}, "ports": [{"port": 80}]}}


def test_an_object_between_look_and_write_is_never_taken_over(
    cluster: Cluster, namespace: str, proxy: Proxy, tmp_path: Path
) -> None:
    space = Space(cluster.api, namespace)
    path = kinds.SERVICE.path(namespace)
    state = {"made": False, "broken": False}

    def rule(request: Request) -> Fault | None:
        if request.target == "services/m" and request.method == "PATCH" and not state["made"]:
            state["made"] = True
            cluster.api.create(path, SERVICE)
        return Answer(503) if state["broken"] and request.watching and request.resource == "services" else None

    door = proxy.open(rule)
    operator = start(cluster, door, tmp_path, namespace)
    try:
        # Nothing was there when the operator looked.
        space.apply(files(), deployment())
        space.wait_condition("Accepted", "False", "Conflict")
        untouched(space)
        space.delete(kinds.SERVICE, "m")
        space.wait_settled(limit_s=30)

        # The operator's watch of Services is broken, so it still sees its own Service.
        state["broken"] = True
        door.drop_streams("services")
        until(lambda: operator.logged("cannot watch"), bool, goal="the watch is broken")
        space.delete(kinds.SERVICE, "m")
        cluster.api.create(path, SERVICE)
        space.apply(
            deployment(
                traffic={"service": {"annotations": {"external-dns.alpha.kubernetes.io/hostname": "m.example.com"}}}
            )
        )
        until(lambda: operator.logged("reconcile failed"), bool, goal="the write is refused")
        always(lambda: untouched(space), lambda _: True, goal="it stays theirs", for_s=1)
        state["broken"] = False
        space.wait_condition("Accepted", "False", "Conflict")
        untouched(space)
        assert operator.stop() == 0
    finally:
        operator.stop()


def untouched(space: Space) -> bool:
    """Hold that the Service is theirs alone."""
    service = space.must(kinds.SERVICE, "m")
    assert service["spec"]["selector"] == {"theirs": "1"}
    assert "ownerReferences" not in service["metadata"]
    assert "labels" not in service["metadata"]
    return True
