"""What the client makes of an object before it is sent. Its requests are tested against a real API server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from halcyon.kube import encoding, errors, kinds
from halcyon.kube.client import KubeClient, connect
from halcyon.kube.encoding import as_yaml
from halcyon.kube.errors import Busy, Conflicted, Gone, NotFound, Refused, of_status
from halcyon.kube.http_transport import LEASE_LATE_S, MAX_AT_ONCE
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


@pytest.mark.parametrize(
    "detail", [b'{"code": 14, "details": "upstream reset"}', b'{"code": 8, "details": [{"a": 1}]}', b"[]"]
)
def test_an_error_body_of_a_gateway_becomes_an_api_error(detail: bytes) -> None:
    assert isinstance(encoding.error("GET /lease", 503, encoding.status(detail), "7"), Busy)
    assert encoding.error("GET /lease", 503, encoding.status(detail), "7").retry_after_s == 7


@pytest.mark.parametrize("body", [b"[1]", b'"ok"', b"null", b"<html>"])
def test_a_response_that_is_no_object_counts_as_unreachable(body: bytes) -> None:
    async def scenario(_: VirtualTime) -> None:
        async def read() -> bytes:
            return body

        server: Any = Server()

        async def request(method: str, url: str, **_: object) -> Any:
            del method, url
            return SimpleNamespace(response=SimpleNamespace(status=200, read=read))

        server.request = request
        with pytest.raises(errors.Unreachable):
            await KubeClient(server).get(kinds.POD, "ns", "a")

    run(scenario)


class Server:
    """Answers each request when the test says so."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.lease, self.slow = asyncio.Event(), asyncio.Event()
        self.rest_client = self
        self.configuration = SimpleNamespace(host="https://server")

    async def update_params_for_auth(self, *_: object) -> None:
        """Nobody's credentials."""

    async def request(self, method: str, url: str, **_: object) -> Any:
        self.requests.append(f"{method} {url.rpartition('/')[2].partition('?')[0]}")
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
        return server.requests

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
        return server.requests[MAX_AT_ONCE:]

    assert run(scenario) == ["PATCH lease", "GET read", "PATCH late"]


def test_a_fenced_client_reads_and_renews_and_writes_nothing() -> None:
    async def scenario(_: VirtualTime) -> list[str]:
        server = Server()
        server.lease.set()
        lost = LeaseFence("halcyon-system/halcyon", DrivenClock(lambda: 100.0), deadline_s=7.0, duration_s=10.0)
        lost.renew(at=0.0)
        client = KubeClient(cast("Any", server), fence=lost)
        pod: dict[str, Any] = {"metadata": {"name": "pod", "namespace": "ns"}}
        for write in (
            client.apply(kinds.POD, pod),
            client.create(kinds.POD, pod, namespace="ns"),
            client.patch(kinds.POD, "ns", "pod", {}),
            client.delete(kinds.POD, "ns", "pod"),
            client.evict("ns", {"metadata": {"name": "pod", "uid": "u"}}),
        ):
            with pytest.raises(errors.LeaseLost):
                await write
        await client.get(kinds.POD, "ns", "read")
        await client.patch(kinds.LEASE, "ns", "lease", {})
        return server.requests

    assert run(scenario) == ["GET read", "PATCH lease"]


class Timing(Server):
    """Notes the timeout of each request, in the client and for the API server."""

    def __init__(self, status: int = 200, message: str = "") -> None:
        super().__init__()
        self.status, self.message = status, message
        self.timeouts: list[tuple[str, float, str]] = []

    async def request(self, method: str, url: str, **options: Any) -> Any:
        timeout = parse_qs(urlsplit(url).query).get("timeout", [""])[0]
        self.timeouts.append((method, options["_request_timeout"].total, timeout))

        async def read() -> bytes:
            return json.dumps({"message": self.message}).encode()

        return SimpleNamespace(response=SimpleNamespace(status=self.status, read=read, headers={}))


def test_a_write_has_only_the_time_until_another_replica_may_lead() -> None:
    async def scenario(time: VirtualTime) -> list[tuple[str, float, str]]:
        server = Timing()
        fence = LeaseFence("halcyon-system/halcyon", DrivenClock(time), deadline_s=7.0, duration_s=10.0)
        client = KubeClient(cast("Any", server), fence=fence)
        pod = {"metadata": {"name": "pod", "namespace": "ns"}}
        await client.apply(kinds.POD, pod)  # a process that never led
        fence.renew(at=time())
        await client.apply(kinds.POD, pod)
        await asyncio.sleep(6.5)
        await client.scale(kinds.POD, {"metadata": {"name": "pod", "namespace": "ns", "uid": "u"}}, before=1, after=2)
        await client.get(kinds.POD, "ns", "pod")
        return server.timeouts

    assert run(scenario) == [
        ("PATCH", 20.0, "20000ms"),
        ("PATCH", 10.0, "10000ms"),
        ("PATCH", 3.5, "3500ms"),
        ("GET", 20.0, ""),
    ]


def test_another_uid_is_a_conflict_and_no_refusal() -> None:
    message = 'ConfigMap "a" is invalid: metadata.uid: Invalid value: "u": field is immutable'

    async def scenario(_: VirtualTime) -> None:
        client = KubeClient(cast("Any", Timing(422, message)))
        with pytest.raises(Conflicted, match="another object"):
            await client.apply(kinds.POD, {"metadata": {"name": "a", "namespace": "ns", "uid": "u"}})
        with pytest.raises(Conflicted, match="another object"):
            await client.patch(kinds.POD, "ns", "a", {"metadata": {"uid": "u"}})
        other = KubeClient(cast("Any", Timing(422, "spec.replicas: Invalid value")))
        with pytest.raises(Refused):
            await other.apply(kinds.POD, {"metadata": {"name": "a", "namespace": "ns", "uid": "u"}})

    run(scenario)


@pytest.mark.parametrize(("namespace", "name"), [("ns", "leases"), ("leases", "model")])
def test_writes_of_models_that_are_named_like_leases_are_fenced(namespace: str, name: str) -> None:
    async def scenario(_: VirtualTime) -> list[str]:
        server = Server()
        server.lease.set()
        lost = LeaseFence("halcyon-system/halcyon", DrivenClock(lambda: 100.0), deadline_s=7.0, duration_s=10.0)
        lost.renew(at=0.0)
        with pytest.raises(errors.LeaseLost):
            await KubeClient(cast("Any", server), fence=lost).patch(kinds.MODEL_DEPLOYMENT, namespace, name, {})
        return server.requests

    assert run(scenario) == []


async def test_a_missing_service_account_is_an_error_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(errors.SettingsError, match=r"no API server is configured: .*--kubeconfig="):
        await connect(account=tmp_path)
    with pytest.raises(errors.SettingsError, match="no API server is configured"):
        await connect(str(tmp_path / "kubeconfig"))
