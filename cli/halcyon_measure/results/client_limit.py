"""Whether the client, and not the server, limited a run. Pure: rules over what the processes used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Limit = Literal["none", "preparing", "client CPU", "cores"]

BUSY = 0.85
"""Share of one core above which a process of the load is busy: its event loop is one thread."""
PREPARING = 0.9
"""Share of their time in which the user's functions are busy."""
WAITING = 0.2
"""Share of its time in which a process waits for a core."""
_IDLE = 0.01
"""Share of its time below which waiting for a core explains nothing."""
LATE_S = 0.002
"""Delay between the time when a request was due and its sending that is of no account."""


@dataclass(frozen=True)
class ClientLimit:
    """What limited the client."""

    limit: Limit
    evidence: str
    """Figures for it, as a phrase."""
    remedy: str
    """What would change it; empty if nothing limits."""


def judge(
    usage: Sequence[Mapping[str, float]],
    *,
    late_p99_s: float | None,
    p50_s: float | None,
    is_open: bool,
) -> ClientLimit:
    """Return what limited the client.

    `usage` has seconds of each process: `wall_s`, `cpu_s`, `core_wait_s`, and `hook_busy_s` with `hook_processes`.
    `late_p99_s` is the 99th percentile of the delay of sending, `p50_s` the median latency, both in seconds.
    """
    cpu = max((one["cpu_s"] / one["wall_s"] for one in usage if one["wall_s"] > 0), default=0.0)
    waiting = max((one["core_wait_s"] / one["wall_s"] for one in usage if one["wall_s"] > 0), default=0.0)
    hooks = max(
        (one["hook_busy_s"] / (one["wall_s"] * one["hook_processes"]) for one in usage if one.get("hook_processes")),
        default=0.0,
    )
    late = late_p99_s is not None and late_p99_s > max(LATE_S, 0.05 * (p50_s or 0.0))
    said = f"its busiest process used {cpu:.0%} of a core"
    if late_p99_s is not None and is_open:
        said += f", and 1 % of the requests were sent {1000 * late_p99_s:.1f} ms late or more"
    if hooks >= PREPARING:
        return ClientLimit(
            "preparing",
            f"the functions that prepare and finish were busy {hooks:.0%} of the time",
            "more processes for them, for example --hook-processes 4",
        )
    if cpu >= BUSY or (is_open and late and waiting < _IDLE):
        return ClientLimit("client CPU", said, "more processes, for example --processes 2, on more cores")
    if (is_open and late) or waiting >= WAITING:
        return ClientLimit(
            "cores", f"{said}; it waited for a core {waiting:.0%} of the time", "a machine with free cores"
        )
    return ClientLimit("none", said, "")
