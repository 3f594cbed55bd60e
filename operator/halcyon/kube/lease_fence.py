"""Fence that stops the leader's writes from the moment at which another replica may hold the Lease."""

from __future__ import annotations

from halcyon.kube import errors
from halcyon.kube.clock import Clock


class LeaseFence:
    """Time of the last renewal of this process's Lease. `LeaderElector` updates it, and the client checks it before each write.

    A process that has never held the Lease is not fenced; its permissions limit what it can write.
    """

    def __init__(self, lease: str, clock: Clock, *, deadline_s: float) -> None:
        """Create the fence for a process that does not hold the Lease yet.

        Args:
            lease: namespace and name of the Lease, for messages.
            clock: clock of this process.
            deadline_s: maximum time since the last renewal at which writes are allowed, in seconds.
        """
        self._lease, self._clock, self._deadline_s = lease, clock, deadline_s
        self._renewed_at: float | None = None

    def renew(self, at: float) -> None:
        """Record that the Lease was renewed at this monotonic time."""
        self._renewed_at = at

    def check(self) -> None:
        """Raise an error if this process may not write any more.

        Without this check, a leader whose process was paused beyond the deadline could write until its elector runs again.

        Raises:
            LeaseLost: this process held the Lease and has not renewed it in time.
        """
        if self._renewed_at is None:
            return
        late_s = self._clock.monotonic() - self._renewed_at
        if late_s >= self._deadline_s:
            raise errors.LeaseLost(f"lease {self._lease} was renewed {late_s:.1f} s ago: another replica may lead")
