"""API keys at the real HAProxy 3.0: who may come, what a change of the Secret makes of it, and where a key is never found."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from halcyon.balancer.config.api_keys import MAX_CLIENTS
from halcyon.balancer.runtime.controller import HaproxyController
from halcyon.balancer.secrets.mounted_secrets import MountedSecrets, SecretNames
from tests.integration.balanced import PLAN, Balanced, new_balanced, raw
from tests.integration.crowd import call, message, preface
from tests.integration.waiting import PATIENCE
from tests.unit.balancer.stand_ins import SERVICE, Pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.more

ALICE, BOB = "alice-0123456789abcdef", "B0b~!$%^&*()_+{}|:<>?"
PATH = "/v2/models/m/infer"
NEEDED = "an API key is required: send Authorization: Bearer KEY, or x-api-key: KEY"


class PodWithHeaders(Pod):
    """A pod that keeps the headers that it is sent."""

    header_names: tuple[str, ...] = ()

    async def _answer(self, method: str, target: str, request: str, fields: dict[str, str]) -> tuple[int, str]:
        self.header_names += tuple(fields)
        return await super()._answer(method, target, request, fields)


@pytest.fixture
async def balanced() -> AsyncIterator[Balanced]:
    async with new_balanced() as instance:
        plain = instance.pod()
        instance.pods.append(await PodWithHeaders(plain.address, plain.http_port, plain.grpc_port).start())
        yield instance


def put(folder: Path, **keys: str) -> None:
    """As the kubelet does: a folder for each state, and a link to that of the moment."""
    folder.mkdir(exist_ok=True)
    snapshot = folder / f"..{len(list(folder.iterdir()))}"
    snapshot.mkdir()
    for name, key in keys.items():
        (snapshot / name).write_text(key)
    link = folder / "..new"
    link.symlink_to(snapshot.name)
    link.replace(folder / "..data")


async def begin(balanced: Balanced, mounted: Path) -> None:
    haproxy = balanced.haproxy
    files = MountedSecrets(SecretNames(keys="digits-keys"), mounted=mounted, config=haproxy.config)
    balanced.pilot = HaproxyController(haproxy.runtime, haproxy.config, haproxy.listen, files=files)
    await balanced.begin(replace(PLAN, access_log="All"))


async def by_http(balanced: Balanced, *headers: str, path: str = PATH) -> int:
    head = "".join(f"{header}\r\n" for header in ("Host: x", "User-Agent: t", "Content-Length: 0", *headers))
    status, answer_headers, body = await raw(
        balanced.haproxy.ports.http, f"POST {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1")
    )
    if status == 401:
        assert (answer_headers["www-authenticate"], json.loads(body)["error"]) == ("bearer", NEEDED)
    return status


async def read(balanced: Balanced, method: str, path: str) -> int:
    request = f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n"
    return (await raw(balanced.haproxy.ports.http, request.encode()))[0]


async def by_grpc(balanced: Balanced, *metadata: tuple[str, str], method: str = "ModelInfer") -> str:
    async with balanced.channel as channel:
        call = channel.unary_unary(SERVICE + method)(b"x", timeout=10 * PATIENCE, metadata=metadata)
        code = (await call.code()).name
        assert code == "OK" or (await call.details()) == NEEDED
        return str(code)


class OpenConnection:
    """An HTTP/2 connection whose client goes on after the GOAWAY of a replaced HAProxy process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer, self._stream = reader, writer, -1
        writer.write(preface())

    async def is_admitted(self, key: str) -> bool:
        self._stream += 2
        self._writer.write(call(self._stream, "ModelInfer", message(1), complete=True, key=key))
        received = b""
        while b"grpc-message" not in received:
            part = await asyncio.wait_for(self._reader.read(65536), 5 * PATIENCE)
            assert part, "the connection was closed"
            received += part
        return NEEDED.encode() not in received

    def close(self) -> None:
        self._writer.close()


async def test_a_client_with_a_key_is_admitted_and_pods_never_see_it(balanced: Balanced, tmp_path: Path) -> None:
    put(tmp_path / "keys", alice=ALICE + "\n", bob=BOB)
    await begin(balanced, tmp_path)
    assert balanced.pilot.problem == ""
    for header in (f"Authorization: Bearer {ALICE}", f"authorization: bearer {BOB}", f"X-Api-Key: {BOB}"):
        assert await by_http(balanced, header) == 200
    assert await by_grpc(balanced, ("authorization", f"Bearer {ALICE}")) == "OK"
    assert await by_grpc(balanced, ("x-api-key", BOB)) == "OK"
    for header in (
        "A: b",
        "X-Api-Key: alice",
        f"X-Api-Key: {ALICE}x",
        f"Authorization: Basic {ALICE}",
        "Authorization: Bearer",
        "X-Api-Key:",
    ):
        assert await by_http(balanced, header) == 401
    # What there is isn't told either.
    assert await by_http(balanced, path="/none") == 401
    for path in ("/v2/models/m/config", "/v2/models/m/stats", "/v2/models/m"):
        assert [await read(balanced, method, path) for method in ("GET", "HEAD")] == [401, 401]
    for method in ("ModelConfig", "ModelStatistics"):
        assert await by_grpc(balanced, method=method) == "UNAUTHENTICATED"
    assert await by_grpc(balanced) == await by_grpc(balanced, ("x-api-key", ALICE[:-1])) == "UNAUTHENTICATED"
    [pod] = balanced.pods
    assert isinstance(pod, PodWithHeaders)
    assert (pod.http_count, pod.grpc_count) == (3, 2)
    assert not {"authorization", "x-api-key"} & set(pod.header_names)
    log = balanced.haproxy.log_text()
    clients = [json.loads(line)["client"] for line in log.splitlines() if line.startswith("{")]
    assert {name: clients.count(name) for name in ("alice", "bob")} == {"alice": 2, "bob": 3}
    for file in balanced.haproxy.directory.resolve().iterdir():
        if file.is_file():
            assert ALICE.encode() not in file.read_bytes()
            assert BOB.encode() not in file.read_bytes()
    assert (await balanced.haproxy.runtime.read()).rejected == 0


async def test_a_key_of_all_visible_characters_is_admitted_in_each_form(balanced: Balanced, tmp_path: Path) -> None:
    key = "".join(map(chr, range(33, 127)))
    put(tmp_path / "keys", all=key, start=key.partition(",")[0])
    await begin(balanced, tmp_path)
    for header in (f"Authorization: Bearer {key}", f"AUTHORIZATION: BEARER   {key}", f"X-API-KEY: {key}"):
        assert await by_http(balanced, header) == 200
    for metadata in (("authorization", f"Bearer {key}"), ("x-api-key", key)):
        assert await by_grpc(balanced, metadata) == "OK"
    for header in (
        key,
        f"Bearer{key}",
        f"Bearer {key} {key}",
        f"Bearer {key}, Bearer {key}",
        f"Basic {key}",
        "Bearer ",
    ):
        assert await by_http(balanced, f"Authorization: {header}") == 401
    reading = await balanced.haproxy.runtime.read()
    assert {name: usage.requests for name, usage in reading.usage.items()} == {"all": 5}


async def test_requests_and_bytes_are_counted_by_client(balanced: Balanced, tmp_path: Path) -> None:
    put(tmp_path / "keys", alice=ALICE, bob=BOB)
    await begin(balanced, tmp_path)
    for _ in range(3):
        assert await by_http(balanced, f"X-Api-Key: {ALICE}") == 200
    assert await by_grpc(balanced, ("x-api-key", BOB)) == "OK"
    assert await by_http(balanced, f"X-Api-Key: {BOB}", path="/none") == 404
    assert await by_http(balanced, "X-Api-Key: none") == 401
    reading = await balanced.haproxy.runtime.read()
    assert {name: usage.requests for name, usage in reading.usage.items()} == {"alice": 3, "bob": 1}
    assert reading.requests == 4
    assert all(usage.sent_bytes > 0 for usage in reading.usage.values())
    assert reading.usage["alice"].received_bytes > reading.usage["bob"].received_bytes > 0


async def test_more_clients_than_the_table_holds_are_admitted_uncounted(balanced: Balanced, tmp_path: Path) -> None:
    keys = {f"client-{number:03}": f"{number:03}{ALICE}" for number in range(MAX_CLIENTS + 4)}
    put(tmp_path / "keys", **keys)
    await begin(balanced, tmp_path)
    for key in keys.values():
        assert await by_http(balanced, f"X-Api-Key: {key}") == 200
    reading = await balanced.haproxy.runtime.read()
    assert len(reading.usage) == MAX_CLIENTS
    assert {usage.requests for usage in reading.usage.values()} == {1}
    assert "client-000" in reading.usage, "the first ones are kept"


async def test_a_removed_key_is_rejected_and_without_keys_every_client_is(balanced: Balanced, tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    alice, bob = f"X-Api-Key: {ALICE}", f"X-Api-Key: {BOB}"
    await begin(balanced, tmp_path)
    assert balanced.pilot.problem == "Secret digits-keys: there is no valid API key, so every request is rejected"
    assert [await by_http(balanced, alice), await by_http(balanced, "X-Api-Key:")] == [401, 401]
    for keys, who in (
        ({"alice": ALICE}, [200, 401]),
        ({"bob": BOB}, [401, 200]),
        ({"alice": ALICE, "bob": BOB}, [200, 200]),
    ):
        put(folder, **keys)
        await balanced.turn()
        await balanced.turn()
        assert [await by_http(balanced, alice), await by_http(balanced, bob)] == who
    put(folder, alice=ALICE, bob="too short", carol="a b" * 9)
    await balanced.turn()
    await balanced.turn()
    wrong = "is not a valid key: it must have 16 to 512 visible ASCII characters"
    assert balanced.pilot.problem == f"Secret digits-keys: bob {wrong}; carol {wrong}"
    assert [await by_http(balanced, alice), await by_http(balanced, "X-Api-Key: too short")] == [200, 401]
    put(folder)
    await balanced.turn()
    await balanced.turn()
    assert await by_http(balanced, alice) == 401
    assert balanced.haproxy.worker_exits() == 0


async def test_open_connections_to_replaced_processes_lose_removed_keys(balanced: Balanced, tmp_path: Path) -> None:
    put(tmp_path / "keys", alice=ALICE, bob=BOB)
    await begin(balanced, tmp_path)
    connections = []
    try:
        for plan in (replace(PLAN, access_log="All", queue_limit=30), PLAN):
            connection = OpenConnection(*await asyncio.open_connection("127.0.0.1", balanced.haproxy.ports.grpc))
            connections.append(connection)
            assert [await connection.is_admitted(key) for key in (ALICE, BOB)] == [True, True]
            if plan is PLAN:
                put(tmp_path / "keys", bob=BOB)
            else:
                balanced.pilot.accept(plan)
            await balanced.turn()
            await balanced.turn()
        assert balanced.pilot.reloads == 2
        for connection in connections:
            assert [await connection.is_admitted(key) for key in (ALICE, BOB)] == [False, True]
    finally:
        for connection in connections:
            connection.close()
    assert balanced.haproxy.worker_exits() == 0
