"""Autoscalers with which Halcyon is compared. Each uses its own project's algorithm, as far as it can scale Triton.

`build` creates a policy from a name and parameters, `sweep` returns the grid of settings for a fair comparison, and
`PEERS` lists all peers. The only input of a peer is a `PolicyView`. Each peer's docstring describes how it handles a
missing metric.
"""

from __future__ import annotations

from halcyon_simulator.policies.peers.parameters import PolicyError
from halcyon_simulator.policies.peers.registry import PEERS, Peer, build, sweep

__all__ = ["PEERS", "Peer", "PolicyError", "build", "sweep"]
