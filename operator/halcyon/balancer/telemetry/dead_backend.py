"""Which pod to take out because its backend is dead. Pure.

Triton does not restart a Python stub that died: every request then fails after a second, while readiness stays 200 (measured on
2.51). What shows it is `nv_inference_request_failure{reason="BACKEND"}`, rising without a success beside it.
A model that answers bad input with an error counts in the same way, so at most one pod is taken out in a while, and never
the last.

    failures since the last look | successes | pods that serve | since the last one | verdict
    none                         | any       | any             | any                | nobody
    some                         | some      | any             | any                | nobody: look again soon
    some                         | none      | 1               | any                | nobody: the last one
    some                         | none      | 2 or more       | < interval         | nobody: wait
    some                         | none      | 2 or more       | >= interval        | the pod with the most failures
    unknown, or counters restarted           | any             | any                | nobody
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

INTERVAL_S = 30.0
"""Shortest time between two pods that are taken out."""


@dataclass(frozen=True)
class Outcomes:
    """Counters of one pod's process."""

    succeeded: int | None
    backend_failed: int | None


@dataclass(frozen=True)
class Ejection:
    """What follows from one look."""

    dead: str | None
    """The pod to take out now."""
    suspects: frozenset[str]
    """Pods that failed in the time between: look again soon."""


def judge(
    before: Mapping[str, Outcomes],
    after: Mapping[str, Outcomes],
    *,
    serving: AbstractSet[str],
    last_s: float | None,
    now: float,
    interval_s: float = INTERVAL_S,
) -> Ejection:
    """The verdict on two looks at the same pods.

    Args:
        before: counters at the last look, by pod.
        after: counters now.
        serving: pods that take requests now (those in maintenance are none of them).
        last_s: when a pod was last taken out; None for never.
        now: seconds of the same clock.
        interval_s: shortest time between two of them.
    """
    failures: dict[str, int] = {}
    without_success: set[str] = set()
    for pod in serving & before.keys() & after.keys():
        failed = _rise(before[pod].backend_failed, after[pod].backend_failed)
        succeeded = _rise(before[pod].succeeded, after[pod].succeeded)
        if failed:
            failures[pod] = failed
            if succeeded == 0:
                without_success.add(pod)
    may = len(serving) > 1 and (last_s is None or now - last_s >= interval_s)
    dead = max(sorted(without_success), key=lambda pod: failures[pod], default=None) if may else None
    return Ejection(dead, frozenset(failures))


def _rise(before: int | None, after: int | None) -> int | None:
    if before is None or after is None or after < before:
        return None
    return after - before
