"""The autoscalers that Halcyon is compared with, each as its own project wrote it, as far as it can scale Triton.

`build` makes one from a name and strings, `sweep` gives the grid on which it is judged fairly, `PEERS` lists them. Every peer
sees a `View` and nothing else; a missing metric is treated as that peer treats it, which its docstring says.
"""

from __future__ import annotations

from halcyon_simulator.policies.peers.parameters import PolicyError
from halcyon_simulator.policies.peers.registry import PEERS, Peer, build, sweep

__all__ = ["PEERS", "Peer", "PolicyError", "build", "sweep"]
