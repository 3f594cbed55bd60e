"""The autoscalers that Halcyon is compared with, each with its own project's algorithm, as far as it can scale Triton.

`build` creates one from a name and strings, `sweep` returns the grid for a fair comparison, `PEERS` lists them. Every peer
sees only a `PolicyView`. A missing metric is treated as that peer treats it; its docstring describes how.
"""

from __future__ import annotations

from halcyon_simulator.policies.peers.parameters import PolicyError
from halcyon_simulator.policies.peers.registry import PEERS, Peer, build, sweep

__all__ = ["PEERS", "Peer", "PolicyError", "build", "sweep"]
