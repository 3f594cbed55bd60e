"""Record of the resources that the Kubernetes API forbids the agent to read. The agent's probes and reports show them.

The agent exits if it can't get the plan or the endpoints because of such a denial.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from halcyon.balancer.discovery.kube_watch import KubeError

if TYPE_CHECKING:
    from collections.abc import Callable

FORBIDDEN_TIMEOUT_S = 10.0
"""Time in seconds after which the agent exits if the API server forbids it to read the plan or the EndpointSlices.

An agent that already has both, for example from a previous run, does not exit. The pod status shows the reason for the
exit.
"""


class ApiDenials:
    """Resources that the API server currently forbids the agent to read."""

    def __init__(self, role: str, on_change: Callable[[], object]) -> None:
        """Create an empty record.

        Args:
            role: name of the Role that must grant the permissions.
            on_change: called whenever a denial is recorded or removed.
        """
        self._role, self._on_change = role, on_change
        self._texts: dict[str, str] = {}

    @property
    def texts(self) -> tuple[str, ...]:
        """Sentences about denied reads, one for each resource that the agent can't read."""
        return tuple(self._texts.values())

    def callback(self, resource: str) -> Callable[[str], None]:
        """Return a callback that records the reason why the API server denied access to `resource`.

        If the callback is called with an empty string, it removes the record.
        """

        def on_denied(text: str) -> None:
            self._texts.pop(resource, None)
            if text:
                self._texts[resource] = f"{resource} can't be read: {text}; Role {self._role} must grant it"
            self._on_change()

        return on_denied

    async def check(self, has_state: Callable[[], bool]) -> None:
        """Raise an error if the agent still may not read the plan or the endpoints after `FORBIDDEN_TIMEOUT_S`.

        An agent that already has both (`has_state`), for example from a previous run, keeps running.

        Raises:
            KubeError: the API server forbade the reads for that time.
        """
        clock = asyncio.get_running_loop().time
        allowed_at = clock()
        while True:
            if has_state() or not self._texts:
                allowed_at = clock()
            elif clock() - allowed_at > FORBIDDEN_TIMEOUT_S:
                raise KubeError("; ".join(self._texts.values()))
            await asyncio.sleep(1)
