"""Record of the resources that the Kubernetes API denies the agent access to, shown by its probes and reports.

If a denial keeps the agent from reading the plan or the endpoints, the agent exits.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from halcyon.balancer.discovery.kube_watch import KubeError

if TYPE_CHECKING:
    from collections.abc import Callable

FORBIDDEN_TIMEOUT_S = 10.0
"""Time in seconds after which the agent exits if the API server denies it access to the plan or the EndpointSlices.

An agent that already has both, for example from a previous run, does not exit. The pod status shows the reason for the
exit.
"""


class ApiDenials:
    """Resources to which the API server currently denies the agent access."""

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
        """One sentence for each resource to which the agent is denied access."""
        return tuple(self._texts.values())

    def callback(self, resource: str) -> Callable[[str], None]:
        """Return a callback that takes the reason why the API server denied access to `resource`, and records it.

        An empty reason removes the record.
        """

        def on_denied(text: str) -> None:
            self._texts.pop(resource, None)
            if text:
                self._texts[resource] = f"{resource} can't be read: {text}; Role {self._role} must grant it"
            self._on_change()

        return on_denied

    async def check(self, has_state: Callable[[], bool]) -> None:
        """Raise an error if access to the plan or the endpoints has been denied for `FORBIDDEN_TIMEOUT_S`.

        An agent that already has both (`has_state`), for example from a previous run, keeps running.

        Raises:
            KubeError: access was denied for that time.
        """
        clock = asyncio.get_running_loop().time
        allowed_at = clock()
        while True:
            if has_state() or not self._texts:
                allowed_at = clock()
            elif clock() - allowed_at > FORBIDDEN_TIMEOUT_S:
                raise KubeError("; ".join(self._texts.values()))
            await asyncio.sleep(1)
