"""Endpoints from EndpointSlices, updated with the operator's newer notices about pods. Pure.

A notice reports that a pod is ready, unready or leaving. It takes precedence over the slices until they agree, for at
most `MAX_HELD_S`.

If a notice is wrong or lost, the slices still give the correct state later. If there are two notices about one pod, the
later one applies.
"""

# notice     | until the slices agree, at most `MAX_HELD_S`, the pod counts as    | then
# ready      | serving, even if missing or not serving in the slices          | as in the slices
# unready    | not serving                                                    | as in the slices
# leaving    | terminating, for as long as the slices list it                 | (no limit)

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from halcyon.triton.client import Endpoint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from halcyon.api.documents.pod_notice import Notice

MAX_HELD_S: Final = 10.0
"""Maximum time for which a notice overrides the EndpointSlices, in seconds.

It is longer than the delays of the EndpointSlice controller, which waits 1 s before it updates a slice that has just
changed, and 2 s if it has to wait a second time."""


@dataclass(frozen=True)
class _ReceivedNotice:
    notice: Notice
    at: float


class NoticedEndpoints:
    """Operator's notices about the pods of one model, which are applied to the model's endpoints."""

    def __init__(self) -> None:
        """Create an instance that has no notices yet."""
        self._notices: dict[str, _ReceivedNotice] = {}

    def add(self, notice: Notice, now: float) -> None:
        """Add a notice about a pod. `now` is the monotonic time, in seconds."""
        before = self._notices.get(notice.pod)
        # A late notice from another operator replica must not bring back a pod that is leaving.
        if before is None or before.notice.change != "leaving":
            self._notices[notice.pod] = _ReceivedNotice(notice, now)

    def amend(self, endpoints: tuple[Endpoint, ...] | None, now: float) -> tuple[Endpoint, ...] | None:
        """Return the endpoints of the EndpointSlices with the notices applied; None while the slices are unknown."""
        if endpoints is None or not self._notices:
            return endpoints
        listed = {endpoint.pod: endpoint for endpoint in endpoints}
        self._notices = {
            pod: received
            for pod, received in self._notices.items()
            if _still_applies(received, listed.get(pod), held=now - received.at < MAX_HELD_S)
        }
        return tuple(sorted(self._amended(listed), key=lambda e: (e.slot, e.pod)))

    def _amended(self, listed: dict[str, Endpoint]) -> Iterable[Endpoint]:
        for pod, endpoint in listed.items():
            received = self._notices.get(pod)
            if received is None:
                yield endpoint
            elif received.notice.change == "leaving":
                yield replace(endpoint, terminating=True)
            else:
                yield replace(endpoint, serving=received.notice.change == "ready")
        for pod, received in self._notices.items():
            if pod not in listed and received.notice.change == "ready":
                yield Endpoint(received.notice.slot, pod, received.notice.address, serving=True, terminating=False)


def _still_applies(received: _ReceivedNotice, listed: Endpoint | None, *, held: bool) -> bool:
    """Return True if the notice about a pod still applies, because the EndpointSlices do not agree with it yet.

    `held` is true if the notice is younger than `MAX_HELD_S` seconds.
    """
    if received.notice.change == "leaving":
        return held if listed is None else not listed.terminating
    if listed is None:
        return held
    agrees = listed.terminating or listed.serving == (received.notice.change == "ready")
    return held and not agrees
