"""What the processes of a load have measured together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from halcyon_measure.results.columns import Columns
from halcyon_measure.results.folded import Folded
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
    folded: Folded | None = None
    """Counts of the requests, if there were too many to keep each: then there are no columns."""

    @property
    def count(self) -> int:
        """Requests of the measured part."""
        return len(self.columns) if self.folded is None else len(self.folded)

    def save(self, folder: Path) -> Path:
        """Write requests.npz, or histogram.npz for requests that are counted, and return its path."""
        if self.folded is not None:
            path = folder / "histogram.npz"
            self.folded.save(path, messages=self.messages, pods=self.pods)
        else:
            path = folder / "requests.npz"
            self.columns.save(path, messages=self.messages, pods=self.pods)
        return path
