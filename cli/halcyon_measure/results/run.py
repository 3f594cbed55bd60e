"""Merged measurements of all processes of a load."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from halcyon_measure.results.columns import Columns
from halcyon_measure.results.folded import Folded
from halcyon_measure.results.observations import Observations


@dataclass(frozen=True)
class Run:
    """Measurements of a run, merged over all processes of the load."""

    columns: Columns
    messages: tuple[str, ...]
    """Distinct failure messages; `Columns.kind` is an index into them."""
    pods: tuple[str, ...]
    warm_up_s: float
    settled: bool | None
    """Whether the load had settled when the measured part began; None if the warm-up had a fixed length."""
    measured_s: float
    """Length of the measured part, in which requests became due, in seconds."""
    partial: bool
    """Whether the run was ended early."""
    usage: tuple[dict[str, float], ...]
    """CPU and waiting times of each process in the measured part, in seconds."""
    observations: Observations | None = None
    """Samples of servers and machines; None if none were taken."""
    folded: Folded | None = None
    """Counts of the requests if there were too many to keep as rows, in which case the columns are empty; otherwise
    None."""

    @property
    def count(self) -> int:
        """Number of requests in the measured part."""
        return len(self.columns) if self.folded is None else len(self.folded)

    def save(self, folder: Path) -> Path:
        """Write requests.npz, or histogram.npz if only counts were kept, and return the path of the file."""
        if self.folded is not None:
            path = folder / "histogram.npz"
            self.folded.save(path, messages=self.messages, pods=self.pods)
        else:
            path = folder / "requests.npz"
            self.columns.save(path, messages=self.messages, pods=self.pods)
        return path
