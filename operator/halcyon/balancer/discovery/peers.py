"""Client with which an agent reads the loads of the model's other balancers (`shares`).

If an agent can't be reached, its last load is used for `MAX_AGE_S`. After that, the other balancers divide its share of
the pods' capacity. Agents read each other's loads directly, so the limits of the pods don't depend on the operator.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from halcyon.balancer.runtime.shares import MAX_BYTES, BalancerLoad, LoadError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from halcyon.triton.client import Endpoint

PATH: Final = "/load"
"""URL path at which each agent returns the load of its balancer."""
MAX_AGE_S: Final = 3.0
READ_TIMEOUT_S: Final = 0.5


class Peers:
    """Other agents of the same model, with the newest known load of each."""

    def __init__(self, pod: str, port: int) -> None:
        """Create the client without any loads.

        Args:
            pod: name of the agent's own pod.
            port: port of all agents.
        """
        self._pod = pod
        self._port = port
        self._loads: dict[str, tuple[float, BalancerLoad]] = {}

    async def read(self, balancers: Iterable[Endpoint], *, now: float) -> tuple[BalancerLoad, ...]:
        """Read the loads of all other balancers, and return the newest known load of each.

        Args:
            balancers: all balancer pods of the model, from its client Service.
            now: monotonic time, in seconds.
        """
        others = {balancer.pod: balancer.address for balancer in balancers if balancer.pod != self._pod}
        answers = await asyncio.gather(*(self._load(address) for address in others.values()))
        for pod, load in zip(others, answers, strict=True):
            if load is not None:
                self._loads[pod] = (now, load)
        self._loads = {
            pod: entry for pod, entry in self._loads.items() if pod in others and now - entry[0] <= MAX_AGE_S
        }
        return tuple(load for _, load in self._loads.values())

    async def _load(self, address: str) -> BalancerLoad | None:
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(address, self._port)
                try:
                    writer.write(f"GET {PATH} HTTP/1.1\r\nHost: agent\r\n\r\n".encode())
                    answer = b""
                    while len(answer) < MAX_BYTES and (part := await reader.read(65536)):
                        answer += part
                finally:
                    writer.close()
            head, _, body = answer.partition(b"\r\n\r\n")
            return BalancerLoad.from_json(body.decode()) if head.split(b" ", 2)[1:2] == [b"200"] else None
        except (OSError, UnicodeDecodeError, LoadError):
            return None
