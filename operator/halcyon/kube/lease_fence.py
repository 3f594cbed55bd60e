"""Fence that stops the leader's writes as soon as another replica may hold the Lease."""

from __future__ import annotations

import math

from halcyon.kube import errors
from halcyon.kube.clock import Clock


class LeaseFence:
    """Check that stops the writes of a process as soon as another replica may hold the Lease.

    It contains the time of the last renewal of this process's Lease. `LeaderElector` updates this time, and the client
    reads it before each write. A process that has never held the Lease is not fenced; its permissions limit what it can
    write.
    """

    def __init__(self, lease: str, clock: Clock, *, deadline_s: float, duration_s: float) -> None:
        """Create the fence for a process that does not hold the Lease yet. `lease` is its name, for messages.

        A write may begin up to `deadline_s` seconds after the last renewal. Another replica may hold the Lease from
        `duration_s` seconds after the last renewal on.
        """
        self._lease, self._clock, self._deadline_s, self._duration_s = lease, clock, deadline_s, duration_s
        self._renewed_at: float | None = None

    def renew(self, at: float) -> None:
        """Record that the Lease was renewed at this monotonic time."""
        self._renewed_at = at

    def left_s(self) -> float:
        """Return the seconds within which a write that begins now must end.

        The result is infinite if this process has never held the Lease.

        A write that took longer could overwrite a write of the next leader. Without `LeaseLost`, a leader whose process
        was paused beyond the deadline could write until its elector runs again.

        Raises:
            LeaseLost: this process held the Lease and has not renewed it in time.
        """
        if self._renewed_at is None:
            return math.inf
        late_s = self._clock.monotonic() - self._renewed_at
        if late_s >= self._deadline_s:
            raise errors.LeaseLost(f"lease {self._lease} was renewed {late_s:.1f} s ago: another replica may lead")
        return self._duration_s - late_s
