"""Readiness of a balancer pod: the reasons why it must not receive connections from clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from halcyon.balancer.agent.front_end_checks import FrontEndChecks
    from halcyon.balancer.runtime.controller import HaproxyController

_RESPONSE_TIMEOUT_S = 5.0


def why_unready(
    controller: HaproxyController,
    front_ends: FrontEndChecks,
    *,
    is_leaving: bool,
    knows_endpoints: bool,
    denials: Sequence[str],
) -> str | None:
    """Return the reason why the balancer isn't ready; None if it is ready.

    It is ready if HAProxy and its front ends respond, and HAProxy runs an accepted plan. The endpoints must also be
    known, from the API server or from a previous agent. It stays ready even if all connections of a port are in use.
    Otherwise its clients would move on and overload the next balancer.
    """
    if is_leaving:
        return "draining"
    if controller.is_shut:
        return controller.problem or "HAProxy is loading its first certificate"
    if not controller.answered_within(_RESPONSE_TIMEOUT_S):
        return "HAProxy does not respond"
    reading = controller.reading
    if (silent := front_ends.silent(_RESPONSE_TIMEOUT_S)) and (reading is None or reading.connections_used < 1):
        return f"HAProxy's front end {silent[0]} does not respond"
    if not knows_endpoints:
        return "; ".join(["EndpointSlices have not been read yet", *denials])
    return None
