"""EndpointSlices, amended by the operator's newer notices about pods. Pure.

    notice     | until the slices agree, at most `MAX_HELD_S`, the pod counts as    | then
    ready      | serving, even if missing or not serving in the slices          | as in the slices
    unready    | not serving                                                    | as in the slices
    leaving    | terminating, for as long as the slices list it                 |

The slices correct a notice that is false or never comes; of two notices about one pod the later one counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from halcyon.balancer.runtime.server_assignment import Endpoint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from halcyon.api.documents.pod_notice import Notice

MAX_HELD_S: Final = 10.0
"""Longer than the EndpointSlice controller takes: 1 s if a slice has just changed, and 2 s the next time."""


@dataclass(frozen=True)
class _ReceivedNotice:
    notice: Notice
    at: float


class NoticedEndpoints:
    """Endpoints of one model, with the notices about its pods."""

    def __init__(self) -> None:
        """Start without notices."""
        self._heard: dict[str, _ReceivedNotice] = {}

    def hear(self, notice: Notice, now: float) -> None:
        """Add a notice; `now` is monotonic, in seconds."""
        before = self._heard.get(notice.pod)
        # A late notice from another stream must not bring back a leaving pod.
        if before is None or before.notice.news != "leaving":
            self._heard[notice.pod] = _ReceivedNotice(notice, now)

    def amend(self, told: tuple[Endpoint, ...] | None, now: float) -> tuple[Endpoint, ...] | None:
        """Return the slices' endpoints with the notices applied, or None while the slices are unknown."""
        if told is None or not self._heard:
            return told
        listed = {endpoint.pod: endpoint for endpoint in told}
        self._heard = {
            pod: heard
            for pod, heard in self._heard.items()
            if _still_applies(heard, listed.get(pod), held=now - heard.at < MAX_HELD_S)
        }
        return tuple(sorted(self._amended(listed), key=lambda e: (e.slot, e.pod)))

    def _amended(self, listed: dict[str, Endpoint]) -> Iterable[Endpoint]:
        for pod, endpoint in listed.items():
            heard = self._heard.get(pod)
            if heard is None:
                yield endpoint
            elif heard.notice.news == "leaving":
                yield replace(endpoint, terminating=True)
            else:
                yield replace(endpoint, serving=heard.notice.news == "ready")
        for pod, heard in self._heard.items():
            if pod not in listed and heard.notice.news == "ready":
                yield Endpoint(heard.notice.slot, pod, heard.notice.address, serving=True, terminating=False)


def _still_applies(heard: _ReceivedNotice, listed: Endpoint | None, *, held: bool) -> bool:
    """Return True if the notice still adds something to the slices."""
    if heard.notice.news == "leaving":
        return held if listed is None else not listed.terminating
    if listed is None:
        return held
    agrees = listed.terminating or listed.serving == (heard.notice.news == "ready")
    return held and not agrees
