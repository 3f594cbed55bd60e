"""Loss and return of the second node of a running cluster, for `lose-node`, `return-node` and tests."""

from e2e.cluster import cluster as clusters
from e2e.cluster import network, second_node
from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError


def lose(name: str, *, network_only: bool = False) -> None:
    """Turn off the second node of cluster NAME, or only its network: its processes then continue.

    Raises:
        ClusterError: the cluster isn't up or has no second node.
    """
    cluster = _with_two_nodes(name)
    if network_only:
        network.cut_second(cluster.network)
    else:
        second_node.lose(cluster.place, cluster.network)


def bring_back(name: str, *, network_only: bool = False) -> None:
    """Turn on the second node of cluster NAME, or only its network, and wait until it is Ready.

    Raises:
        ClusterError: the cluster isn't up or has no second node, or the node doesn't become Ready.
    """
    cluster = _with_two_nodes(name)
    if network_only:
        network.mend_second(cluster.network)
        second_node.wait_until_ready(cluster.api)
    else:
        gpus = cluster.options.gpus
        second_node.bring_back(cluster.place, cluster.bin, cluster.network, cluster.api, gpus=gpus)


def _with_two_nodes(name: str) -> Cluster:
    cluster = clusters.get(name)
    if cluster.options.nodes == 1:
        raise ClusterError(f"cluster {name} has no second node; bring it up with: --nodes 2 --name {name}")
    return cluster
