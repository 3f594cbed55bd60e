"""Number of requests in flight on each pod, read from a model's balancer."""

import asyncio
import json
from collections.abc import Callable
from typing import Self

from benchmarks.errors import BenchError
from demo.kube import Kube

SCRIPT = """
import asyncio, json, sys
from halcyon.balancer.runtime.runtime_api import RuntimeSocket

haproxy = RuntimeSocket(sys.argv[1], "")
for _ in sys.stdin:
    servers = asyncio.run(haproxy.read()).servers.values()
    print(json.dumps({server.address: server.sessions for server in servers if server.admin == "ready"}), flush=True)
"""
"""Program that runs beside HAProxy: for each line of input, it prints the requests in flight by address as JSON."""
_PYTHON, _SOCKET = "/opt/halcyon/bin/python", "/run/halcyon/haproxy.sock"


class InflightReader:
    """Reader of the requests in flight on each pod, through a single kubectl exec to the balancer's HAProxy."""

    def __init__(self, kube: Kube, balancer: str) -> None:
        self._kube, self._balancer = kube, balancer

    def command(self) -> list[str]:
        """Return the command that runs the script in the balancer's pod."""
        kubectl = [str(self._kube.programs / "kubectl"), f"--kubeconfig={self._kube.kubeconfig}"]
        python = [f"--namespace={self._kube.namespace}", "exec", "-i", self._balancer, "-c", "agent", "--", _PYTHON]
        return [*kubectl, *python, "-c", SCRIPT, _SOCKET]

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *self.command(), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def read(self) -> dict[str, int]:
        """Return the requests in flight by the address of each pod that receives requests.

        Raises:
            BenchError: the balancer doesn't respond.
        """
        if self._process.stdin is None or self._process.stdout is None:
            raise BenchError("kubectl exec has no pipes")
        self._process.stdin.write(b"\n")
        async with asyncio.timeout(10):
            line = await self._process.stdout.readline()
        if not line:
            raise BenchError(f"kubectl exec {self._balancer} has ended; its error is above")
        return {str(address): int(count) for address, count in json.loads(line).items()}

    async def until(self, condition: Callable[[dict[str, int]], bool], *, limit_s: float) -> None:
        """Poll until `condition` holds for the result of `read`. HAProxy offers no events.

        Raises:
            TimeoutError: the time limit passed.
        """
        async with asyncio.timeout(limit_s):
            while True:
                if condition(await self.read()):
                    return
                await asyncio.sleep(0.1)
