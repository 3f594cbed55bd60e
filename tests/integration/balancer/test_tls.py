"""TLS at the real HAProxy 3.0: what is served, what a change of the Secrets makes of it, and that it is never plain text."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ssl
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import grpc  # type: ignore[import-untyped]  # grpcio has no types
import grpc.aio  # type: ignore[import-untyped]  # same
import pytest
from cryptography.hazmat.primitives import serialization

from halcyon.balancer.config.model import TlsFiles
from halcyon.balancer.runtime.controller import HaproxyController
from halcyon.balancer.secrets.mounted_secrets import MountedSecrets, SecretNames
from tests.integration.balanced import PLAN, Balanced, agent, is_, new_balanced, until
from tests.integration.certificates import Pair, pair
from tests.integration.waiting import PATIENCE
from tests.unit.balancer.stand_in_api import SLICES, slice_of
from tests.unit.balancer.stand_ins import SERVICE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.more

REQUEST = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@dataclass
class Secured:
    """A balancer with the folders of its Secrets."""

    balanced: Balanced
    mounted: Path
    secrets: SecretNames

    def put(self, crt: str, key: str) -> None:
        self._write("certificate", {"tls.crt": crt, "tls.key": key})

    def put_clients(self, crt: str) -> None:
        self._write("clients", {"ca.crt": crt})

    def _write(self, folder: str, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = self.mounted / folder / name
            path.parent.mkdir(exist_ok=True)
            if text:
                path.write_text(text)
            else:
                path.unlink(missing_ok=True)

    def pilot(self) -> HaproxyController:
        """As an agent that starts has it."""
        haproxy = self.balanced.haproxy
        files = MountedSecrets(self.secrets, mounted=self.mounted, config=haproxy.config)
        listen = replace(haproxy.listen, tls=TlsFiles())
        self.balanced.pilot = HaproxyController(haproxy.runtime, haproxy.config, listen, files=files)
        return self.balanced.pilot

    async def begin(self) -> None:
        self.pilot().accept(PLAN)
        await self.balanced.turn()
        await asyncio.to_thread(self.balanced.haproxy.start, port=self.balanced.haproxy.ports.metrics)
        await self.balanced.turn()
        await self.balanced.turn()

    async def turn(self) -> None:
        await self.balanced.turn()
        await self.balanced.turn()

    @property
    def trouble(self) -> str:
        return self.balanced.pilot.problem

    async def served(self, *trusted: Pair, client: Pair | None = None, protocol: str = "http") -> bytes:
        """The certificate that a new connection meets; it asks and is answered."""
        ports = self.balanced.haproxy.ports
        context = self.context(*trusted, client=client)
        context.set_alpn_protocols(["h2", "http/1.1"])
        port = ports.http if protocol == "http" else ports.grpc
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        try:
            spoken = writer.get_extra_info("ssl_object")
            assert spoken.selected_alpn_protocol() == ("http/1.1" if protocol == "http" else "h2")
            if protocol == "http":
                writer.write(REQUEST)
                assert (await asyncio.wait_for(reader.readuntil(b"\r\n"), 5 * PATIENCE)).startswith(b"HTTP/1.1 200")
            der: bytes = spoken.getpeercert(binary_form=True)
            return der
        finally:
            await closed(writer)

    def context(self, *trusted: Pair, client: Pair | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata="".join(each.crt for each in trusted))
        if client is not None:
            file = self.mounted / "client.pem"
            file.write_text(client.crt + client.key)
            context.load_cert_chain(file)
        return context

    def channel(self, *trusted: Pair, client: Pair | None = None) -> grpc.aio.Channel:
        credentials = grpc.ssl_channel_credentials(
            "".join(each.crt for each in trusted).encode(),
            client and client.key.encode(),
            client and client.crt.encode(),
        )
        options = [("grpc.use_local_subchannel_pool", 1)]
        return grpc.aio.secure_channel(f"127.0.0.1:{self.balanced.haproxy.ports.grpc}", credentials, options=options)

    async def is_open(self) -> bool:
        ports = self.balanced.haproxy.ports
        for port in (ports.http, ports.grpc):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                await closed(writer)
                return True
        return False


@pytest.fixture
async def balanced() -> AsyncIterator[Balanced]:
    async with new_balanced() as instance:
        await instance.start()
        yield instance


@pytest.fixture
def secured(balanced: Balanced, tmp_path: Path) -> Secured:
    return Secured(balanced, tmp_path, SecretNames("digits-tls"))


async def grpc_answer(channel: grpc.aio.Channel) -> bytes:
    return bytes(await channel.unary_unary(SERVICE + "ModelInfer")(b"x", timeout=10 * PATIENCE))


async def test_both_protocols_speak_tls_and_nothing_else(secured: Secured) -> None:
    own = pair()
    secured.put(own.crt, own.key)
    await secured.begin()
    ports = secured.balanced.haproxy.ports
    assert await secured.served(own) == await secured.served(own, protocol="grpc") == own.der
    async with secured.channel(own) as channel:
        assert await grpc_answer(channel) == secured.balanced.pods[0].address.encode()
    old = secured.context(own)
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    for port in (ports.http, ports.grpc):
        with pytest.raises(OSError, match=r"(?i)alert|version|eof|reset"):
            await asyncio.open_connection("127.0.0.1", port, ssl=old)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST)
        with contextlib.suppress(ConnectionResetError):
            assert b"200" not in await asyncio.wait_for(reader.read(), 5 * PATIENCE)
        await closed(writer)
    assert secured.trouble == ""
    assert secured.balanced.pods[0].http_count == 1
    for file in secured.balanced.haproxy.directory.resolve().glob("*.pem"):
        assert file.stat().st_mode & 0o777 == 0o600


async def test_clients_are_rejected_until_the_first_certificate_is_there(secured: Secured) -> None:
    own = pair()
    for crt, key, why in (
        ("", "", "key tls.crt is missing"),
        (own.crt, "", "key tls.key is missing"),
        ("x", "y", "tls.crt is not PEM"),
    ):
        secured.put(crt, key)
        if secured.balanced.haproxy.process is None:
            await secured.begin()
        await secured.turn()
        assert secured.balanced.pilot.is_shut
        assert secured.trouble.startswith(f"Secret digits-tls: {why}")
        assert secured.trouble.endswith("; no connection is accepted")
        assert not await secured.is_open()
    secured.put(own.crt, own.key)
    await secured.turn()
    assert (secured.balanced.pilot.is_shut, secured.trouble) == (False, "")
    assert await secured.served(own) == own.der
    assert secured.balanced.pilot.reloads == 1


class Clients:
    """Three kinds of clients that ask without a pause; any failure of theirs ends the test."""

    def __init__(self, secured: Secured, *trusted: Pair) -> None:
        self._secured, self._trusted = secured, trusted
        self._over = asyncio.Event()
        self._answered = {"anew": 0, "kept": 0, "grpc": 0}

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(client()) for client in (self._anew, self._keep, self._keep, self._grpc)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over.set()
        await asyncio.gather(*self._tasks)

    async def more(self) -> None:
        """Until each kind was answered some times more."""
        before = dict(self._answered)

        async def grown() -> bool:
            for task in self._tasks:
                if task.done():
                    task.result()
            return all(self._answered[name] > before[name] + 5 for name in before)

        await until(grown, 20)

    async def _anew(self) -> None:
        while not self._over.is_set():
            await self._secured.served(*self._trusted)
            self._answered["anew"] += 1

    async def _keep(self) -> None:
        while not self._over.is_set():
            port = self._secured.balanced.haproxy.ports.http
            context = self._secured.context(*self._trusted)
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            head = b""
            while not self._over.is_set() and b"connection: close" not in head:
                writer.write(REQUEST)
                head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5 * PATIENCE)).lower()
                assert head.startswith(b"http/1.1 200")
                await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
                self._answered["kept"] += 1
            await closed(writer)

    async def _grpc(self) -> None:
        async with self._secured.channel(*self._trusted) as channel:
            while not self._over.is_set():
                await grpc_answer(channel)
                self._answered["grpc"] += 1


async def test_a_new_certificate_is_served_without_a_failed_request(secured: Secured) -> None:
    first, second = pair(), pair()
    secured.put(first.crt, first.key)
    await secured.begin()
    async with Clients(secured, first, second) as clients:
        for number, now in enumerate((second, first, second), 1):
            await clients.more()
            secured.put(now.crt, now.key)
            await secured.turn()
            assert secured.balanced.pilot.reloads == number
            assert await secured.served(first, second) == now.der
        await clients.more()
    assert (await secured.balanced.haproxy.runtime.read()).errors == 0
    assert secured.balanced.haproxy.worker_exits() == 0


async def test_a_broken_certificate_leaves_the_last_good_one_even_over_restarts(secured: Secured) -> None:
    own, other = pair(), pair()
    secured.put(own.crt, own.key)
    await secured.begin()
    hidden = pair(password=b"secret")
    broken = {
        "tls.crt and tls.key are not a certificate and its key": [
            (own.crt, other.key),
            (hidden.crt, hidden.key),
            (own.key, own.key),
        ],
        "tls.crt is not PEM": [("hello", own.key), (own.crt[:200], own.key)],
        "key tls.crt is missing": [("", own.key)],
    }
    for why, contents in broken.items():
        for crt, key in contents:
            secured.put(crt, key)
            await secured.turn()
            assert secured.trouble.startswith(f"Secret digits-tls: {why}")
            assert secured.trouble.endswith("; the last valid one stays in use")
            assert await secured.served(own) == own.der
    assert secured.balanced.pilot.reloads == 0
    # Another agent, then another HAProxy: what they find is what was good.
    secured.pilot().accept(PLAN)
    await secured.turn()
    assert (secured.balanced.pilot.reloads, secured.balanced.pilot.is_shut) == (0, False)
    secured.balanced.haproxy.kill()
    await secured.balanced.turn()
    await asyncio.to_thread(secured.balanced.haproxy.start)
    await secured.turn()
    assert await secured.served(own) == own.der
    secured.put(other.crt, other.key)
    await secured.turn()
    assert secured.trouble == ""
    assert await secured.served(other) == other.der


async def test_an_expired_certificate_replaces_no_good_one_and_the_expiry_is_reported(
    secured: Secured,
) -> None:
    own, late, over = pair(), pair(left=dt.timedelta(hours=30)), pair(left=-dt.timedelta(1))
    # The first one is served whatever it is: there is no better one.
    secured.put(over.crt, over.key)
    await secured.begin()
    assert not secured.balanced.pilot.is_shut
    assert secured.trouble.startswith("Secret digits-tls, as in use: tls.crt expired 1 day ago, on 20")

    secured.put(own.crt, own.key)
    await secured.turn()
    assert secured.trouble == ""
    assert await secured.served(own) == own.der
    secured.put(over.crt, over.key)
    await secured.turn()
    assert secured.trouble.startswith("Secret digits-tls: tls.crt expired 1 day ago, on 20")
    assert secured.trouble.endswith("; the last valid one stays in use")
    assert await secured.served(own) == own.der
    # Nor after a restart of the agent.
    secured.pilot().accept(PLAN)
    await secured.turn()
    assert secured.trouble.endswith("; the last valid one stays in use")
    assert await secured.served(own) == own.der

    secured.put(late.crt, late.key)
    await secured.turn()
    assert secured.trouble.startswith("Secret digits-tls, as in use: tls.crt expires in 1 day, on 20")
    assert await secured.served(late) == late.der
    end = secured.balanced.pilot.expires["tls.crt"]
    assert abs(end - time.time() - 30 * 3600) < 3600


async def test_expired_authorities_are_reported_and_only_a_set_without_others_is_refused(
    balanced: Balanced, tmp_path: Path
) -> None:
    secured = Secured(balanced, tmp_path, SecretNames("digits-tls", "digits-clients"))
    own, client, expired = pair(), pair(), pair(left=-dt.timedelta(2))
    secured.put(own.crt, own.key)
    secured.put_clients(client.crt)
    await secured.begin()
    assert await secured.served(own, client=client) == own.der
    assert secured.trouble == ""

    secured.put_clients(expired.crt)
    await secured.turn()
    assert secured.trouble.startswith("Secret digits-clients: ca.crt expired 2 days ago, on 20")
    assert await secured.served(own, client=client) == own.der
    secured.put_clients(expired.crt + client.crt)
    await secured.turn()
    assert secured.trouble.startswith("Secret digits-clients, as in use: certificate 1 of 2 in ca.crt expired")
    assert await secured.served(own, client=client) == own.der
    assert set(balanced.pilot.expires) == {"tls.crt", "ca.crt"}


async def test_a_certificate_that_haproxy_refuses_leaves_the_last_good_one(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = pair(), pair()
    secured.put(own.crt, own.key)
    await secured.begin()
    # As if the look at the pair had overlooked something.
    monkeypatch.setattr(
        "halcyon.balancer.secrets.mounted_secrets.ssl.SSLContext.load_cert_chain", lambda *_, **__: None
    )
    secured.put(own.crt, other.key)
    await secured.turn()
    assert "HAProxy did not reload" in secured.trouble
    assert await secured.served(own) == own.der
    secured.balanced.haproxy.kill()
    await asyncio.to_thread(secured.balanced.haproxy.start)
    assert await secured.served(own) == own.der
    secured.put(other.crt, other.key)
    await secured.turn()
    assert secured.trouble == ""
    assert await secured.served(other) == other.der


@pytest.mark.parametrize("tool", ["openssl ecparam", "windows", "spaces"])
async def test_a_key_is_served_as_each_tool_writes_it(secured: Secured, tool: str) -> None:
    own, above = pair(), pair()
    chain, key = own.crt + above.crt, own.key
    if tool == "openssl ecparam":
        plain = serialization.load_pem_private_key(own.key.encode(), None)
        form = serialization.PrivateFormat.TraditionalOpenSSL
        key = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
        key += plain.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()
    elif tool == "windows":
        chain, key = chain.replace("\n", "\r\n"), key.replace("\n", "\r\n")
    else:
        chain, key = chain.replace("\n", " \n"), key.replace("\n", "  \n")
    secured.put(chain, key)
    await secured.begin()
    assert secured.trouble == ""
    assert await secured.served(own) == own.der


async def test_clients_must_show_a_certificate_of_the_authority(balanced: Balanced, tmp_path: Path) -> None:
    secured = Secured(balanced, tmp_path, SecretNames("digits-tls", "digits-clients"))
    own, client, stranger = pair(), pair(), pair()
    secured.put(own.crt, own.key)
    await secured.begin()
    # Half of it would let everybody in.
    assert (
        secured.trouble
        == "Secret digits-clients: key ca.crt is missing; kubectl describe secret lists the keys; no connection is accepted"
    )
    assert not await secured.is_open()
    secured.put_clients(client.crt)
    await secured.turn()
    assert secured.trouble == ""
    assert await secured.served(own, client=client) == own.der
    async with secured.channel(own, client=client) as channel:
        assert await grpc_answer(channel)
    for other in (None, stranger):
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await secured.served(own, client=other)
        async with secured.channel(own, client=other) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await grpc_answer(channel)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    secured.put_clients("")
    await secured.turn()
    assert "key ca.crt is missing" in secured.trouble
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        await secured.served(own)
    secured.put_clients(stranger.crt)
    await secured.turn()
    assert await secured.served(own, client=stranger) == own.der
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        await secured.served(own, client=client)


async def test_the_agent_reports_missing_files_and_is_ready_once_they_are_there(
    balanced: Balanced, tmp_path: Path
) -> None:
    own = pair()
    secrets = SecretNames("digits-tls")
    ports = balanced.haproxy.ports
    async with agent(balanced, tmp_path, metrics_port=1, secured_by=secrets) as running:
        secured = Secured(balanced, tmp_path / "secrets", secrets)
        await until(lambda: running.is_("/healthz", 200), 10)
        await asyncio.to_thread(balanced.haproxy.start, port=ports.metrics)
        collector = running.collectors[0]

        def problem() -> str | None:
            sample = collector.records[-1][1].balancer if collector.records else None
            return None if sample is None else sample.problem

        lacks = "Secret digits-tls: key tls.crt is missing; kubectl describe secret lists the keys; no connection is accepted"
        await until(lambda: is_(lambda: problem() == lacks), 20)
        assert await running.probe("/readyz") == (503, (lacks + "\n").encode())
        assert b"halcyon_agent_degraded 1\n" in (await running.probe("/metrics"))[1]
        secured.put(own.crt, own.key)
        await until(lambda: running.is_("/readyz", 200), 20)
        pod = balanced.pods[0]
        running.api.put(SLICES, "m-server-a-x", slice_of("m-server-a", {"m-a-1": pod.address}))
        assert await secured.served(own) == own.der
        await until(lambda: is_(lambda: problem() == ""), 20)
        secured.put("", own.key)
        await until(lambda: is_(lambda: (problem() or "").endswith("; the last valid one stays in use")), 20)
        assert await running.is_("/readyz", 200)
