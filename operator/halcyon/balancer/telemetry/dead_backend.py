"""Detection of a pod whose backend is dead, so that it can be taken out. Pure.

Triton does not restart a Python stub that died: every request then fails after a second, while readiness stays 200 (measured on
2.51). The sign of it is `nv_inference_request_failure{reason="BACKEND"}` rising without any success.
A model that answers bad input with an error counts in the same way. So at most one pod is taken out per interval, and never
the last.

    failures since the last sample | successes | pods that serve | since the last one | pod to take out
    none                           | any       | any             | any                | none
    some                           | some      | any             | any                | none; sample again soon
    some                           | none      | 1               | any                | none: it is the last one
    some                           | none      | 2 or more       | < interval         | none: wait
    some                           | none      | 2 or more       | >= interval        | the pod with the most failures
    unknown, or counters restarted             | any             | any                | none
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

EJECTION_INTERVAL_S = 30.0
"""Minimum time between two pods that are taken out."""


@dataclass(frozen=True)
class Outcomes:
    """Counters of one pod's process."""

    succeeded: int | None
    backend_failed: int | None


@dataclass(frozen=True)
class Ejection:
    """Result of one sample."""

    dead: str | None
    """The pod to take out now."""
    suspects: frozenset[str]
    """Pods with failures since the last sample: sample again soon."""


def judge(
    before: Mapping[str, Outcomes],
    after: Mapping[str, Outcomes],
    *,
    serving: AbstractSet[str],
    last_s: float | None,
    now: float,
    interval_s: float = EJECTION_INTERVAL_S,
) -> Ejection:
    """Compare two samples of the same pods.

    Args:
        before: counters at the last sample, by pod.
        after: counters now.
        serving: pods that take requests now (pods in maintenance don't).
        last_s: when a pod was last taken out; None for never.
        now: seconds of the same clock.
        interval_s: minimum time between two pods that are taken out.
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
