"""Looks into a model's balancer: how many requests each pod has in flight."""

import asyncio
import json
from collections.abc import Callable
from typing import Self

from benchmarks.errors import BenchError
from demo.kube import Kube


class Eyes:
    """Requests in flight on each pod, asked of the balancer's HAProxy through one kubectl exec that stays open."""

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

    async def look(self) -> dict[str, int]:
        """By address of a pod that takes requests.

        Raises:
            BenchError: the balancer does not say.
        """
        if self._process.stdin is None or self._process.stdout is None:
            raise BenchError("kubectl exec has no pipes")
        self._process.stdin.write(b"\n")
        async with asyncio.timeout(10):
            line = await self._process.stdout.readline()
        if not line:
            raise BenchError(f"kubectl exec {self._balancer} has ended; its error is above")
        return {str(address): int(count) for address, count in json.loads(line).items()}

    async def until(self, true: Callable[[dict[str, int]], bool], *, limit_s: float) -> None:
        """Look again and again; HAProxy has no events.

        Raises:
            TimeoutError: it was not so within the limit.
        """
        async with asyncio.timeout(limit_s):
            while True:
                if true(await self.look()):
                    return
                await asyncio.sleep(0.1)
