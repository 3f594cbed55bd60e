"""CPU and memory of a process from /proc, and quantiles of Prometheus histograms."""

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path

_BUCKET = re.compile(r'(\w+)_bucket\{(?:.*,)?le="([^"]+)".*\}')
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used so far (user and system), in seconds."""
    # The process name may contain spaces and brackets, but the text after the last bracket doesn't.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def rss_mib(pid: int) -> float:
    """Return the resident memory of a process, in MiB."""
    match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(match[1]) / 1024 if match else math.nan


def histogram_quantile(
    before: Mapping[str, float], after: Mapping[str, float], name: str, share: float
) -> float | None:
    """Return a quantile of the values observed between two scrapes, interpolated linearly within its bucket.

    The result is None if no values were observed. `before` and `after` map names with labels, as in Prometheus text, to
    samples. Values in the open last bucket count as its lower bound, because the histogram contains no more
    information.
    """
    counts: dict[float, float] = {}
    for sample, count in after.items():
        match = _BUCKET.fullmatch(sample)
        if match is not None and match[1] == name:
            bound = math.inf if match[2] == "+Inf" else float(match[2])
            counts[bound] = counts.get(bound, 0.0) + count - before.get(sample, 0.0)
    total = max(counts.values(), default=0.0)
    if total <= 0:
        return None
    low = below = 0.0
    for bound, count in sorted(counts.items()):
        if count >= share * total:
            if math.isinf(bound) or count == below:
                return low
            return low + (bound - low) * (share * total - below) / (count - below)
        low, below = bound, count
    return low
