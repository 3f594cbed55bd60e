"""The site's switch that stops all scaling down: a ConfigMap in the operator's namespace.

Changes of a spec still apply, for example a lower maxReplicas. Both replicas of the operator poll the ConfigMap, so
that a new leader has the current state of the switch.
"""

# | ConfigMap                       | effect                                                       |
# | ------------------------------- | ------------------------------------------------------------ |
# | `holdScaleDown` isn't empty     | no decision and no HPA of Halcyon lowers a model's replicas  |
# | `holdScaleDown` empty or absent | none                                                         |
# | can't be read                   | that of the last successful read                             |
# | could not be read since start   | as if it wasn't empty, unless the operator has no permission |

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from halcyon.kube import kinds
from halcyon.kube.errors import ApiError, Refused, Unreachable
from halcyon.kube.kinds import Kind, Object
from halcyon.scaling.policy.decision import Decision, held

log = logging.getLogger(__name__)

POLL_INTERVAL_S = 5.0
SWITCH = "holdScaleDown"
"""Key of the switch in the ConfigMap. Its value is the reason why scaling down is stopped."""
MAX_REASON_LENGTH = 200
UNREAD = "this is assumed, because the operator could not read the switch yet"
"""Reason until the ConfigMap is first read: the switch may be on, and removed replicas take minutes to start again."""


class Reader(Protocol):
    """Client that reads objects from the API server."""

    async def get(self, kind: Kind, namespace: str, name: str, /) -> Object | None:
        """Return an object from the API server; None if it doesn't exist."""


@dataclass
class SiteHold:
    """Last known state of the switch with which a site stops all scaling down."""

    client: Reader
    namespace: str
    name: str
    """Name of the ConfigMap that contains the switch."""
    on_change: Callable[[], None]
    """Function that is called after a change of the switch, so that the HPAs are rendered again."""
    reason: str = field(default=UNREAD, init=False)
    """Reason why replicas aren't reduced now; empty if the switch is off."""

    async def run(self) -> None:
        """Poll the ConfigMap with the switch until cancelled."""
        while True:
            await self.poll()
            await asyncio.sleep(POLL_INTERVAL_S)

    async def poll(self) -> None:
        """Read the ConfigMap with the switch once. If it can't be read, the switch keeps its last state."""
        try:
            config_map = await self.client.get(kinds.CONFIG_MAP, self.namespace, self.name)
        except (ApiError, Unreachable) as error:
            log.warning("cannot read the switch for scaling down; its last state stays", extra={"error": str(error)})
            if self.reason != UNREAD or not isinstance(error, Refused):
                return
            config_map = None  # a site without the permission has no switch
        reason = " ".join(str(((config_map or {}).get("data") or {}).get(SWITCH) or "").split())[:MAX_REASON_LENGTH]
        if reason != self.reason:
            text = "scaling down is stopped by the site" if reason else "scaling down is allowed"
            log.info(text, extra={"why": reason})
            self.reason = reason
            self.on_change()

    def apply(self, decision: Decision, max_replicas: int) -> Decision:
        """Return the decision, changed so that it doesn't reduce the replicas while the switch is on.

        Replicas above the spec's `max_replicas` are still reduced to this maximum.
        """
        return (
            held(decision, min(decision.current, max_replicas), f"the site has stopped scaling down ({self.reason})")
            if self.reason
            else decision
        )
