"""Speaking to HAProxy's sockets while nobody listens yet. Against the real HAProxy: tests/integration/balancer/test_haproxy.py."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from halcyon.balancer.runtime.haproxy_stats import HaproxyError
from halcyon.balancer.runtime.runtime_api import RuntimeSocket


async def test_a_master_that_executes_itself_again_is_waited_for(tmp_path: Path) -> None:
    path = str(tmp_path / "master.sock")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"reload\n"
        writer.write(b"Success=1\n")
        writer.close()

    # Bound and not listening: connections are refused, as they are while the master starts again.
    with socket.socket(socket.AF_UNIX) as master:
        master.bind(path)
        reload = asyncio.create_task(RuntimeSocket("", path).reload())
        await asyncio.sleep(0.05)
        assert not reload.done()
        async with await asyncio.start_unix_server(answer, sock=master):
            await reload


async def test_a_master_that_never_returns_is_an_error(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as master:
        master.bind(str(tmp_path / "master.sock"))
        with pytest.raises(HaproxyError, match="does not respond"):
            await RuntimeSocket("", str(tmp_path / "master.sock"), timeout_s=0.05).reload()


async def test_a_replaced_worker_loses_the_keys_that_are_not_kept(tmp_path: Path) -> None:
    path, received = str(tmp_path / "master.sock"), []
    file = f"/run/halcyon/keys-{'0' * 16}.map"
    kept, removed = "A" * 64, "B" * 64
    answers = {
        "@!7 show map": f"# id (file) description\n3 ({file}) pattern loaded from file '{file}'\n4 (/other.map) a map\n",
        f"@!7 show map {file}": f"0x55d0 {kept} alice\n0x55e0 {removed} bob\n",
    }

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.read()).decode().strip()
        received.append(line)
        writer.write(answers.get(line, "\n").encode())
        writer.close()

    async with await asyncio.start_unix_server(answer, path):
        await RuntimeSocket("", path).remove_keys({kept}, process=7)
    assert received == [*answers, f"@!7 del map {file} {removed}"]
