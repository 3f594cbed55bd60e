"""The model and the loads under which numbers are compared."""

from __future__ import annotations

from benchmarks.profile import Phase, Profile

MODEL = "m"
T0_MS, PER_ROW_MS, BATCH = 320.0, 10.0, 16
PEAK_RPS = BATCH / (T0_MS + PER_ROW_MS * BATCH) * 1000
LAW = f"{T0_MS:g} + {PER_ROW_MS:g} b ms, batch {BATCH}"
QUEUE_LIMIT = 60
"""Maximum number of requests that wait in the balancer."""
SHARES = (0.1, 0.7, 3.0)
"""Loads, as shares of the capacity."""


def steady(pods: int, share: float, seconds: float) -> Profile:
    """Return a steady load that is this share of the capacity of the pods."""
    return Profile((Phase(0.0, share * PEAK_RPS * pods),), seconds)
