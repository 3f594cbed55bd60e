"""What a process costs, from /proc; and quantiles from the buckets of a Prometheus histogram."""

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path

_BUCKET = re.compile(r'(\w+)_bucket\{(?:.*,)?le="([^"]+)".*\}')
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """CPU seconds, user and system, that a process has taken so far."""
    # The name may hold spaces and brackets; what follows the last one doesn't.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def rss_mib(pid: int) -> float:
    """Resident size now."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else math.nan


def histogram_quantile(
    before: Mapping[str, float], after: Mapping[str, float], name: str, share: float
) -> float | None:
    """A quantile of what was observed between two scrapes, linear within its bucket; None where nothing was.

    `before` and `after` are samples by name with labels, as Prometheus text has them. A value in the open last bucket counts
    as its lower bound: the histogram knows no more.
    """
    found: dict[float, float] = {}
    for sample, count in after.items():
        match = _BUCKET.fullmatch(sample)
        if match is not None and match[1] == name:
            bound = math.inf if match[2] == "+Inf" else float(match[2])
            found[bound] = found.get(bound, 0.0) + count - before.get(sample, 0.0)
    total = max(found.values(), default=0.0)
    if total <= 0:
        return None
    low = below = 0.0
    for bound, count in sorted(found.items()):
        if count >= share * total:
            if math.isinf(bound) or count == below:
                return low
            return low + (bound - low) * (share * total - below) / (count - below)
        low, below = bound, count
    return low
