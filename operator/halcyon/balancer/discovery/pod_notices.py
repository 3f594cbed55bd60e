"""EndpointSlices with what the operator's notices told of pods since. Pure.

    notice     | until the slices agree, `HELD_S` at most, the pod counts as    | then
    ready      | serving, though the slices don't have it, or not as serving    | as the slices have it
    unready    | not serving                                                    | as the slices have it
    leaving    | terminating, as long as the slices have it                     |

A notice that never comes, or a false one, is put right by the slices; of two about one pod the later one counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from halcyon.balancer.runtime.server_assignment import Endpoint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from halcyon.api.documents.pod_notice import Notice

HELD_S: Final = 10.0
"""Longer than the slices' controller takes, which is 1 s where a slice has just changed, and 2 s the next time."""


@dataclass(frozen=True)
class _Heard:
    notice: Notice
    at: float


class NoticedEndpoints:
    """The notices of one model's pods."""

    def __init__(self) -> None:
        """Nothing was told."""
        self._heard: dict[str, _Heard] = {}

    def hear(self, notice: Notice, now: float) -> None:
        """Take a notice; `now` in seconds of a clock that does not jump."""
        before = self._heard.get(notice.pod)
        # What comes late on another stream must not bring back a pod that leaves.
        if before is None or before.notice.news != "leaving":
            self._heard[notice.pod] = _Heard(notice, now)

    def amend(self, told: tuple[Endpoint, ...] | None, now: float) -> tuple[Endpoint, ...] | None:
        """What is known of the pods now: the slices' endpoints and the notices. None where the slices aren't known yet."""
        if told is None or not self._heard:
            return told
        listed = {endpoint.pod: endpoint for endpoint in told}
        self._heard = {
            pod: heard
            for pod, heard in self._heard.items()
            if _lasts(heard, listed.get(pod), held=now - heard.at < HELD_S)
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


def _lasts(heard: _Heard, listed: Endpoint | None, *, held: bool) -> bool:
    """Whether the notice tells what the slices don't."""
    if heard.notice.news == "leaving":
        return held if listed is None else not listed.terminating
    if listed is None:
        return held
    agrees = listed.terminating or listed.serving == (heard.notice.news == "ready")
    return held and not agrees
