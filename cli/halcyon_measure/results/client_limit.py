"""Check whether the client limited a run instead of the server.

Pure: rules on the resource use of the load's processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Limit = Literal["none", "preparing", "client CPU", "cores"]

BUSY = 0.85
"""Share of one core above which a process of the load counts as busy. Its event loop is one thread, so it can't use
more than one core."""
PREPARING = 0.9
"""Share of the time in which user functions run. From this share on, they count as the limit of the client."""
WAITING = 0.2
"""Share of the time in which a process waits for a core. From this share on, missing cores count as the limit of the
client."""
_SHORT_WAIT = 0.1
"""Ratio of a process's waiting time for a core to its CPU time. From this ratio on, missing cores count as the limit
instead of the process's own CPU."""
LATE_S = 0.002
"""Maximum delay in seconds between the due time of a request and its sending. A request with a longer delay counts as
late."""


@dataclass(frozen=True)
class ClientLimit:
    """Limit of the client, with evidence and a remedy."""

    limit: Limit
    evidence: str
    """Measured values as a phrase."""
    remedy: str
    """Change that would remove the limit; empty if the client isn't limited."""


def judge(
    usage: Sequence[Mapping[str, float]],
    *,
    late_p99_s: float | None,
    p50_s: float | None,
    is_open: bool,
) -> ClientLimit:
    """Return the limit of the client, which may be none.

    `usage` has one mapping per process, with times in seconds (`wall_s`, `cpu_s`, `core_wait_s`), and `hook_busy_s`
    with the number `hook_processes`. `late_p99_s` is the 99th percentile of the sending delay, and `p50_s` is the
    median latency, both in seconds.
    """
    cpu = max((process["cpu_s"] / process["wall_s"] for process in usage if process["wall_s"] > 0), default=0.0)
    waiting = max(
        (process["core_wait_s"] / process["wall_s"] for process in usage if process["wall_s"] > 0), default=0.0
    )
    hooks = max(
        (
            process["hook_busy_s"] / (process["wall_s"] * process["hook_processes"])
            for process in usage
            if process.get("hook_processes")
        ),
        default=0.0,
    )
    late = late_p99_s is not None and late_p99_s > max(LATE_S, 0.05 * (p50_s or 0.0))
    evidence = f"its busiest process used {cpu:.0%} of a core"
    if late_p99_s is not None and is_open:
        evidence += f", and 1 % of the requests were sent {1000 * late_p99_s:.1f} ms late or more"
    if hooks >= PREPARING:
        return ClientLimit(
            "preparing",
            f"the functions that prepare and finish were busy {hooks:.0%} of the time",
            "more processes for them, for example --hook-processes 4",
        )
    # A client that sends on time doesn't limit a schedule, whatever it uses: before each request, it stays awake.
    if not (late if is_open else cpu >= BUSY or waiting >= WAITING):
        return ClientLimit("none", evidence, "")
    # Each time that an idle process wakes up, it may wait for a core, which is little of its time.
    if cpu >= BUSY or waiting < _SHORT_WAIT * cpu:
        return ClientLimit("client CPU", evidence, "more processes, for example --processes 2, on more cores")
    return ClientLimit(
        "cores", f"{evidence}; it waited for a core {waiting:.0%} of the time", "a machine with free cores"
    )
