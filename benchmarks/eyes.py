"""Number of requests in flight on each pod, read from a model's balancer."""

import asyncio
import json
from collections.abc import Callable
from typing import Self

from benchmarks.errors import BenchError
from demo.kube import Kube


class InflightReader:
    """Reader of the requests in flight on each pod, through a single kubectl exec to the balancer's HAProxy."""

    _SCRIPT = (
        "import asyncio, json, sys\n"
        "from halcyon.balancer.runtime.runtime_api import RuntimeSocket\n"
        "haproxy = RuntimeSocket('/run/halcyon/haproxy.sock', '')\n"
        "for _ in sys.stdin:\n"
        "    lines = asyncio.run(haproxy.read()).lines.values()\n"
        "    print(json.dumps({l.address: l.sessions for l in lines if l.admin == 'ready'}), flush=True)\n"
    )

    def __init__(self, kube: Kube, balancer: str) -> None:
        self._kube, self._balancer = kube, balancer

    async def __aenter__(self) -> Self:
        arguments = ("exec", "-i", self._balancer, "-c", "agent", "--", "/opt/halcyon/bin/python", "-c", self._SCRIPT)
        self._process = await asyncio.create_subprocess_exec(
            self._kube.programs / "kubectl",
            f"--kubeconfig={self._kube.kubeconfig}",
            f"--namespace={self._kube.namespace}",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
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
