"""Large uploads that wait for a server, and small requests beside them: an HTTP/2 client that fills the windows that it gets.

It runs as a process of its own: `python -m benchmarks.right.uploads PORT CHANNELS UPLOADS BYTES SECONDS`, and prints one line of JSON:
the number of small requests, how many got no response within 5 s, and the latency of the others in milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import sys
import time
from dataclasses import dataclass, field

from tests.integration.crowd import call, frame, preface

_FRAME_BYTES = 16_384
_DATA, _HEADERS, _SETTINGS, _PING, _WINDOW_UPDATE = 0, 1, 4, 6, 8
_ACK, _END_STREAM = 1, 1
_INITIAL_WINDOW = 4
_SMALL = "RepositoryIndex"
"""Method that HAProxy itself rejects, so its latency is that of the channel alone."""
_LOST_AFTER_S = 5.0
_SETTLE_S = 2.0


@dataclass
class _Channel:
    port: int
    uploads: int
    size: int
    seconds: float
    took_ms: list[float] = field(default_factory=list)
    lost: int = 0
    _room: int = 65_535
    _initial: int = 65_535
    _rooms: dict[int, int] = field(default_factory=dict)
    _left: dict[int, int] = field(default_factory=dict)
    _answers: dict[int, asyncio.Future[None]] = field(default_factory=dict)
    _stream: int = -1

    async def run(self) -> None:
        """Start the uploads, then send small requests one after another, without an upload's end."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writer.write(preface(window=2**20))
        tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._fill())]
        try:
            await asyncio.sleep(0.5)
            for _ in range(self.uploads):
                stream = self._open("ModelInfer", None)
                self._rooms[stream], self._left[stream] = self._initial, self.size + 5
                self._send(stream, b"\0" + struct.pack(">I", self.size) + bytes(_FRAME_BYTES - 5))
            await asyncio.sleep(_SETTLE_S)
            until_s = time.monotonic() + self.seconds
            while time.monotonic() < until_s:
                began_s = time.monotonic()
                answer = asyncio.get_running_loop().create_future()
                self._answers[self._open(_SMALL, bytes(5))] = answer
                try:
                    await asyncio.wait_for(answer, _LOST_AFTER_S)
                    self.took_ms.append((time.monotonic() - began_s) * 1000)
                except TimeoutError:
                    self.lost += 1
                await asyncio.sleep(0.05)
        finally:
            for task in tasks:
                task.cancel()
            self._writer.close()

    def _open(self, method: str, body: bytes | None) -> int:
        self._stream += 2
        self._writer.write(call(self._stream, method, body, complete=body is not None))
        return self._stream

    def _send(self, stream: int, payload: bytes) -> None:
        is_last = len(payload) >= self._left[stream]
        self._writer.write(frame(_DATA, _END_STREAM if is_last else 0, stream, payload))
        self._room -= len(payload)
        self._rooms[stream] -= len(payload)
        self._left[stream] -= len(payload)
        if is_last:
            del self._left[stream]

    async def _fill(self) -> None:
        while True:
            for stream in list(self._left):
                size = min(_FRAME_BYTES, self._left[stream], self._rooms[stream], self._room)
                if size > 0 and self._writer.transport.get_write_buffer_size() < 2 * _FRAME_BYTES:
                    self._send(stream, bytes(size))
            await asyncio.sleep(0.001)

    async def _read(self) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                head = await self._reader.readexactly(9)
                kind, flags, stream = head[3], head[4], int.from_bytes(head[5:])
                payload = await self._reader.readexactly(int.from_bytes(head[:3]))
                self._take(kind, flags, stream, payload)

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _SETTINGS and not flags & _ACK:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack(">HI", payload[at : at + 6])
                self._initial = value if name == _INITIAL_WINDOW else self._initial
            self._writer.write(frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self._writer.write(frame(_PING, _ACK, 0, payload))
        elif kind == _WINDOW_UPDATE and not stream:
            self._room += int.from_bytes(payload)
        elif kind == _WINDOW_UPDATE and stream in self._rooms:
            self._rooms[stream] += int.from_bytes(payload)
        elif kind == _HEADERS and stream in self._answers:
            answer = self._answers.pop(stream)
            if not answer.done():
                answer.set_result(None)


async def _run(port: int, channels: int, uploads: int, size: int, seconds: float) -> None:
    open_channels = [_Channel(port, uploads, size, seconds) for _ in range(channels)]
    await asyncio.gather(*(channel.run() for channel in open_channels))
    took_ms = sorted(ms for channel in open_channels for ms in channel.took_ms)
    lost = sum(channel.lost for channel in open_channels)
    print(json.dumps({"small": len(took_ms) + lost, "lost": lost, "took_ms": took_ms}))


if __name__ == "__main__":
    _port, _channels, _uploads, _size = map(int, sys.argv[1:5])
    asyncio.run(_run(_port, _channels, _uploads, _size, float(sys.argv[5])))
