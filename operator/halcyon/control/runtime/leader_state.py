"""State of this replica of the operator, which is the leader or the standby."""

from __future__ import annotations

from halcyon.kube.leader_election import LeaderElector


class LeaderState:
    """State of this replica of the operator as leader or standby. Implements `Leadership`."""

    def __init__(self, elector: LeaderElector) -> None:
        """Initialize this replica of the operator as the standby."""
        self._elector = elector
        self.is_leader = False
        """Whether this replica of the operator does the leader's work. The work starts after the Lease was acquired,
        and stops before the Lease is released."""

    @property
    def has_leader(self) -> bool:
        """Whether any replica of the operator is known to hold the Lease."""
        return self._elector.has_leader
