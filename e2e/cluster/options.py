"""Options of a cluster: those of `python -m e2e.cluster up`."""

import re
from dataclasses import dataclass

from e2e.cluster.errors import ClusterError

_DURATION = re.compile(r"([1-9]\d*)(ms|s|m)")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of `up`. `hpa_sync` is a Go duration, `gpus` a number. With `registry` the node has an image registry."""

    hpa_sync: str = "15s"
    control_plane_only: bool = False
    gpus: int = 8
    registry: bool = False
    ipv6: bool = False
    """Whether a control plane without a node has IPv6 addresses only."""
    history: bool = False
    """Whether the API server lists and watches from every version since its start."""
    nodes: int = 1
    """Number of real nodes: 1 or 2."""

    def __post_init__(self) -> None:
        if not _DURATION.fullmatch(self.hpa_sync):
            raise ClusterError(f"--hpa-sync {self.hpa_sync}: not a whole number of ms, s or m above 0, e.g. 15s")
        if not 0 <= self.gpus <= 64:
            raise ClusterError(f"--gpus {self.gpus}: not from 0 to 64, e.g. 8")
        if self.registry and self.control_plane_only:
            raise ClusterError("--registry: there is no node to pull from it with --control-plane-only; leave one out")
        if self.nodes not in {1, 2}:
            raise ClusterError(f"--nodes {self.nodes}: not 1 or 2, e.g. 2")
        if self.nodes > 1 and self.control_plane_only:
            raise ClusterError("--nodes 2: there are no real nodes with --control-plane-only; leave one out")
        if self.ipv6 and not self.control_plane_only:
            raise ClusterError("--ipv6: the network of a cluster with a node is IPv4; add --control-plane-only")

    @property
    def text(self) -> str:
        """Return the options as on the command line."""
        only = ["--control-plane-only"] if self.control_plane_only else []
        images = ["--registry"] if self.registry else []
        family = ["--ipv6"] if self.ipv6 else []
        versions = ["--history"] if self.history else []
        nodes = [f"--nodes {self.nodes}"] if self.nodes > 1 else []
        gpus = f"--gpus {self.gpus}"
        return " ".join([f"--hpa-sync {self.hpa_sync}", *only, *nodes, gpus, *images, *family, *versions])
