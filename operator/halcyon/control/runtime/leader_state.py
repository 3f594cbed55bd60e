"""The state of this replica: standby, or leader from after it wins the lease until before it releases it."""

from __future__ import annotations

from halcyon.kube.leader_election import LeaderElector


class LeaderState:
    """The state of this replica; a `Leadership`."""

    def __init__(self, elector: LeaderElector) -> None:
        """Start as a standby."""
        self._elector, self._working = elector, False

    @property
    def is_leader(self) -> bool:
        """Whether this replica does the leader's work: from after it wins the lease until before it releases it."""
        return self._working

    @property
    def has_leader(self) -> bool:
        """Whether, as far as known, any replica holds the lease."""
        return self._elector.has_leader

    def begin(self) -> None:
        """Do the leader's work from now on."""
        self._working = True

    def end(self) -> None:
        """Do it no longer."""
        self._working = False
