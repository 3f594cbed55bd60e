"""The fence of the leader's writes: closed from the moment at which another replica may hold the lease."""

from __future__ import annotations

from halcyon.kube import errors
from halcyon.kube.clock import Clock


class LeaseFence:
    """The state of our lease as the client needs it. `LeaderElector` updates it; the client checks it before each write.

    A process that never led isn't fenced: the API server decides about what it writes.
    """

    def __init__(self, lease: str, clock: Clock, *, deadline_s: float) -> None:
        """Start without a lease.

        Args:
            lease: its namespace and name, for messages.
            clock: of this process.
            deadline_s: maximum time since the last renewal.
        """
        self._lease, self._clock, self._deadline_s = lease, clock, deadline_s
        self._renewed_at: float | None = None

    def renew(self, at: float) -> None:
        """Record that the lease was renewed at this monotonic time."""
        self._renewed_at = at

    def check(self) -> None:
        """Return if this process may write. A leader that was paused past its deadline would otherwise write until its elector runs.

        Raises:
            LeaseLost: the lease was held and wasn't renewed in time.
        """
        if self._renewed_at is None:
            return
        late_s = self._clock.monotonic() - self._renewed_at
        if late_s >= self._deadline_s:
            raise errors.LeaseLost(f"lease {self._lease} was renewed {late_s:.1f} s ago: another replica may lead")
