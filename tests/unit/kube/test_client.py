"""What the client makes of an object before it is sent. Its requests are tested against a real API server."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from halcyon.kube import errors, kinds
from halcyon.kube.client import LEASE_LATE_S, MAX_AT_ONCE, KubeClient
from halcyon.kube.encoding import as_yaml
from halcyon.kube.errors import Busy, Conflicted, Gone, NotFound, Refused, of_status
from halcyon.kube.lease_fence import LeaseFence
from tests.clocks import DrivenClock
from tests.unit.kube.virtual_time import VirtualTime, run


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=20), max_size=4))
def test_an_apply_body_is_the_same_object_as_json_andas_yaml(obj: dict[str, str]) -> None:
    body = as_yaml({"spec": obj}).decode()
    assert json.loads(body) == {"spec": obj}
    assert yaml.safe_load(body) == {"spec": obj}


def test_an_emoji_stands_as_it_is_and_a_delete_character_is_escaped() -> None:
    assert as_yaml({"a": "\U0001f600\x7fé"}) == '{"a": "\U0001f600\\u007f\\u00e9"}'.encode()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, NotFound),
        (409, Conflicted),
        (410, Gone),
        (403, Refused),
        (422, Refused),
        (429, Busy),
        (500, Busy),
        (503, Busy),
    ],
)
def test_an_http_status_becomes_its_error(status: int, kind: type[Exception]) -> None:
    assert type(of_status(status, "said")) is kind


class Server:
    """Answers each request when the test says so."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.lease, self.slow = asyncio.Event(), asyncio.Event()
        self.rest_client = self
        self.configuration = SimpleNamespace(host="https://server")

    async def update_params_for_auth(self, *_: object) -> None:
        """Nobody's credentials."""

    async def request(self, method: str, url: str, **_: object) -> Any:
        self.asked.append(f"{method} {url.rpartition('/')[2].partition('?')[0]}")
        if "/leases" in url:
            await self.lease.wait()
        if url.endswith("/slow"):
            await self.slow.wait()
        return SimpleNamespace(response=SimpleNamespace(status=200, read=_nothing))


async def _nothing() -> bytes:
    return b"{}"


def test_a_late_lease_has_no_more_applies_put_in_front_of_it() -> None:
    async def scenario(_: VirtualTime) -> list[str]:
        server = Server()
        client = KubeClient(cast("Any", server))
        pod = {"metadata": {"name": "early", "namespace": "ns"}}
        async with asyncio.TaskGroup() as group:
            group.create_task(client.patch(kinds.LEASE, "ns", "lease", {}))
            await asyncio.sleep(LEASE_LATE_S / 2)
            await client.apply(kinds.POD, pod)
            await asyncio.sleep(LEASE_LATE_S)
            held_back = group.create_task(client.apply(kinds.POD, {"metadata": {"name": "late", "namespace": "ns"}}))
            await client.get(kinds.POD, "ns", "read")
            await asyncio.sleep(60)
            assert not held_back.done()
            server.lease.set()
        return server.asked

    assert run(scenario) == ["PATCH lease", "PATCH early", "GET read", "PATCH late"]


def test_a_queued_apply_waits_for_a_lease_that_becomes_late() -> None:
    async def scenario(_: VirtualTime) -> list[str]:
        server = Server()
        client = KubeClient(cast("Any", server))
        async with asyncio.TaskGroup() as group:
            for _ in range(MAX_AT_ONCE):
                group.create_task(client.get(kinds.POD, "ns", "slow"))
            await asyncio.sleep(0.1)
            held_back = group.create_task(client.apply(kinds.POD, {"metadata": {"name": "late", "namespace": "ns"}}))
            group.create_task(client.patch(kinds.LEASE, "ns", "lease", {}))
            await asyncio.sleep(2 * LEASE_LATE_S)
            server.slow.set()
            await client.get(kinds.POD, "ns", "read")
            await asyncio.sleep(1)
            assert not held_back.done()
            server.lease.set()
        return server.asked[MAX_AT_ONCE:]

    assert run(scenario) == ["PATCH lease", "GET read", "PATCH late"]


def test_a_fenced_client_reads_and_renews_and_writes_nothing() -> None:
    async def scenario(_: VirtualTime) -> list[str]:
        server = Server()
        server.lease.set()
        lost = LeaseFence("halcyon-system/halcyon", DrivenClock(lambda: 100.0), deadline_s=7.0)
        lost.renew(at=0.0)
        client = KubeClient(cast("Any", server), fence=lost)
        pod: dict[str, Any] = {"metadata": {"name": "pod", "namespace": "ns"}}
        for write in (
            client.apply(kinds.POD, pod),
            client.create(kinds.POD, pod, namespace="ns"),
            client.patch(kinds.POD, "ns", "pod", {}),
            client.delete(kinds.POD, "ns", "pod"),
            client.evict("ns", "pod"),
        ):
            with pytest.raises(errors.LeaseLost):
                await write
        await client.get(kinds.POD, "ns", "read")
        await client.patch(kinds.LEASE, "ns", "lease", {})
        return server.asked

    assert run(scenario) == ["GET read", "PATCH lease"]
