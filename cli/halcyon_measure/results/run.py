"""What the processes of a load have measured together."""

from __future__ import annotations

from dataclasses import dataclass

from halcyon_measure.results.columns import Columns
from halcyon_measure.results.observations import Observations


@dataclass(frozen=True)
class Run:
    """What the processes of a load have measured."""

    columns: Columns
    messages: tuple[str, ...]
    """Different messages of failures; `Columns.kind` is an index into them."""
    pods: tuple[str, ...]
    warm_up_s: float
    settled: bool | None
    """Whether the load had settled when the measured part began; None if warm-up was fixed."""
    measured_s: float
    """Time in seconds in which requests became due."""
    partial: bool
    """True if the run was interrupted."""
    usage: tuple[dict[str, float], ...]
    """CPU and waiting of each process in the measured part, in seconds."""
    observations: Observations | None = None
    """What was read of servers and machines; None if nothing was."""
