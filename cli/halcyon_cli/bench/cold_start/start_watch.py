"""Watch of several starts of a model's server pods. For each start after the first, the pod is deleted.

The pods are read ten times a second. Out of scope: the parts of a start (`halcyon_measure.breakdown.cold_start`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from halcyon.kube import kinds
from halcyon.render import names
from halcyon_cli.bench.cold_start import start_events
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube import fields
from halcyon_cli.kube.object_writer import ObjectWriter
from halcyon_cli.kube.pod_stage import stage

if TYPE_CHECKING:
    from halcyon_measure.breakdown.cold_start import Boundaries

Json = Mapping[str, Any]

_POLL_S = 0.1


def watch(
    cluster: ObjectWriter,
    measured: str,
    *,
    model: str,
    starts: int,
    timeout_s: float,
    keep: Callable[[], None],
) -> list[Boundaries]:
    """Watch this many starts of a ModelDeployment with one replica, and return the times of their steps.

    `keep` is called after each reading, for example to extend a lease.

    Raises:
        ClusterError: the user may not read or delete its pods, or the API server is unreachable.
    """
    found: list[Boundaries] = []
    selector = ",".join(f"{key}={value}" for key, value in names.selector(measured, names.SERVER).items())
    known: set[str] = set()
    for number in range(starts):
        if number:
            for pod in cluster.items(kinds.POD, selector=selector) or []:
                known.add(_uid(pod))
                cluster.delete(kinds.POD, str(pod["metadata"]["name"]), _uid(pod))
        seen, failure = _seen(cluster, selector, known, timeout_s, keep)
        if not seen:
            break
        log = [] if failure else _log(cluster, str(seen[0][1]["metadata"]["name"]))
        found.append(start_events.boundaries(seen, log, model=model, failure=failure))
        if failure:
            break
    return found


def _seen(
    cluster: ObjectWriter, selector: str, known: set[str], timeout_s: float, keep: Callable[[], None]
) -> tuple[list[tuple[float, Json]], str]:
    """Return the readings of the first new pod until it is ready, and the reason if it isn't ready in time.

    The reason is empty if the pod is ready, or if no pod appeared.
    """
    seen: list[tuple[float, Json]] = []
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        now = time.time()
        pods = [pod for pod in cluster.items(kinds.POD, selector=selector) or [] if _uid(pod) not in known]
        mine = [pod for pod in pods if not seen or _uid(pod) == _uid(seen[0][1])]
        if mine:
            seen.append((now, mine[0]))
            if start_events.is_ready(mine[0]):
                return seen, ""
        keep()
        time.sleep(_POLL_S)
    if not seen:
        return seen, ""
    last = stage(seen[-1][1])
    said = " ".join(filter(None, (last.state, last.reason, last.message)))
    return seen, f"it wasn't ready after {timeout_s:.0f} s: {said}"


def _log(cluster: ObjectWriter, pod: str) -> list[str]:
    """Return the lines of Triton's log with timestamps; an empty list if the log can't be read."""
    try:
        return list(cluster.follow_log(pod, names.TRITON, {"follow": "false", "timestamps": "true"}))
    except ClusterError:
        return []


def _uid(pod: Json) -> str:
    return str(fields.mapping(pod.get("metadata")).get("uid"))
