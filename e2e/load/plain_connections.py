"""HTTP/1.1 connections of a load of which it is known which attempt of a request uses which connection."""

import asyncio
from collections import deque

_REJECTED = 429
_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def plain_request(path: str, host: str, body: bytes, json_bytes: int | None) -> bytes:
    """Return a POST request of Triton's HTTP protocol. `json_bytes` is the length of the JSON that precedes binary data."""
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n"
    if json_bytes is not None:
        head += f"Inference-Header-Content-Length: {json_bytes}\r\n"
    return f"{head}\r\n".encode() + body


class PlainConnections:
    """Connections to one address. A new one is opened if none is free."""

    def __init__(self, address: str, *, is_shared: bool) -> None:
        """Create the connections without opening one.

        `is_shared` is true if an attempt that was rejected releases its connection, so that another request may use it.
        """
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._is_shared = is_shared
        self._free: deque[_Connection] = deque()
        self._writers: list[asyncio.StreamWriter] = []

    def close(self) -> None:
        """Close all connections."""
        for writer in self._writers:
            writer.close()

    async def send(self, request: bytes, repeats: int, after_s: float) -> int:
        """Send a request, up to `repeats` times again while it is rejected with 429, and return the last status.

        Raises:
            OSError: the connection broke.
        """
        connection: _Connection | None = None
        for remaining in range(repeats, -1, -1):
            if connection is None:
                connection = await self._take()
            status = await self._exchange(connection, request)
            if status != _REJECTED or not remaining:
                break
            if self._is_shared:
                self._free.append(connection)
                connection = None
            await asyncio.sleep(after_s)
        if connection is not None:
            self._free.append(connection)
        return status

    async def _take(self) -> _Connection:
        # aiohttp's pool uses the connection that has been free for the longest time; idle threads wait longest.
        while self._free:
            connection = self._free.popleft() if self._is_shared else self._free.pop()
            if not connection[0].at_eof():
                return connection
        reader, writer = await asyncio.open_connection(self._host, self._port)
        self._writers.append(writer)
        return reader, writer

    @staticmethod
    async def _exchange(connection: _Connection, request: bytes) -> int:
        reader, writer = connection
        writer.write(request)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            # Triton also sends Inference-Header-Content-Length.
            length = head.partition("\r\ncontent-length:")[2].partition("\r\n")[0]
            await reader.readexactly(int(length or 0))
        except asyncio.IncompleteReadError as error:
            raise ConnectionResetError("the server closed the connection before its response had ended") from error
        return int(head.split(" ", 2)[1])
