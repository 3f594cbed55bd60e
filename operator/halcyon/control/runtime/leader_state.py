"""State of this replica of the operator, which is the leader or the standby."""

from __future__ import annotations

from halcyon.kube.leader_election import LeaderElector


class LeaderState:
    """State of this replica of the operator as leader or standby. Implements `Leadership`."""

    def __init__(self, elector: LeaderElector) -> None:
        """Initialize this replica of the operator as the standby."""
        self._elector = elector
        self._is_leader = False

    @property
    def is_leader(self) -> bool:
        """Whether this replica of the operator does the leader's work.

        The work starts after the Lease was acquired, and stops before the Lease is released.
        """
        return self._is_leader

    def start(self) -> None:
        """Change to the state of the leader."""
        self._is_leader = True

    def stop(self) -> None:
        """Change to the state of the standby."""
        self._is_leader = False

    @property
    def has_leader(self) -> bool:
        """Whether any replica of the operator is known to hold the Lease."""
        return self._elector.has_leader
