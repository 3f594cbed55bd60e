"""A TCP relay that delays all bytes, as a client far away would see them.

It runs as a process of its own: `python -m benchmarks.relay HOST:PORT DELAY_S` prints its port and relays until killed. It has no
limit on bytes in flight, so it stands in for distance and not for bandwidth or loss.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

_PIECE_BYTES = 262_144


@contextlib.contextmanager
def far(address: str, *, round_trip_s: float) -> Iterator[str]:
    """Start a relay to `address` (host:port), yield its own host:port, and end it."""
    command = [sys.executable, "-m", "benchmarks.relay", address, str(round_trip_s / 2)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None:
            raise RuntimeError("the relay has no standard output")
        try:
            yield f"127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            due_s, piece = await queue.get()
            await asyncio.sleep(max(due_s - time.monotonic(), 0))
            if not piece:
                writer.close()
                return
            writer.write(piece)

    delivery = asyncio.create_task(deliver())
    piece = b"-"
    while piece:
        try:
            piece = await reader.read(_PIECE_BYTES)
        except OSError:
            piece = b""
        queue.put_nowait((time.monotonic() + delay_s, piece))
    await delivery


async def _serve(host: str, port: int, delay_s: float) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await asyncio.open_connection(host, port)
        await asyncio.gather(_carry(reader, back_writer, delay_s), _carry(back_reader, writer, delay_s))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    _host, _, _port = sys.argv[1].rpartition(":")
    asyncio.run(_serve(_host, int(_port), float(sys.argv[2])))
