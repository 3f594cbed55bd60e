"""Metrics of the operator's process. Their values are read when Prometheus scrapes them."""

from __future__ import annotations

import math
import re
from importlib.metadata import version
from pathlib import Path

from halcyon.control.reconcile.reconcile_counts import ReconcileCounts
from halcyon.control.runtime import memory_limit
from halcyon.control.runtime.foundation import Foundation
from halcyon.kube import rbac_denials
from halcyon.kube.informers import malformed_objects
from halcyon.monitoring import instruments, operator_metrics

VERSION = version("halcyon-operator")


def register_instruments(base: Foundation, counts: ReconcileCounts) -> None:
    """Register metrics of the process whose values are read when Prometheus scrapes them."""
    reads: instruments.Reads = {
        operator_metrics.LEADER: lambda: float(base.elector.leading.is_set()),
        operator_metrics.QUEUE_READY: lambda: float(len(base.queue)),
        operator_metrics.QUEUE_WAITING: lambda: float(base.queue.waiting),
        operator_metrics.MODELS: lambda: float(len(base.caches.resources.all_keys())),
        operator_metrics.API_WRITES: lambda: base.client.writes,
        operator_metrics.OBJECTS_WRITTEN: lambda: counts.written,
        operator_metrics.OBJECTS_SKIPPED: lambda: counts.skipped,
        operator_metrics.STATUSES_WRITTEN: lambda: counts.statuses,
        operator_metrics.PEAK_MEMORY: _peak_memory_bytes,
        operator_metrics.MEMORY_LIMIT: memory_limit.read,
    }
    instruments.Read(reads, base.registry)
    base.registry.register(rbac_denials.RbacDenialsPage(base.client.rights))
    base.registry.register(malformed_objects.MalformedObjectsPage(base.caches.malformed))
    instruments.gauge(operator_metrics.BUILD, base.registry).labels(VERSION).set(1)


def _peak_memory_bytes() -> float:
    """Return the peak memory of the process, in bytes. The result of getrusage would include the parent process."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return float(match[1]) * 1024 if match else math.nan
