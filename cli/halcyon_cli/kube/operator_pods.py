"""Operators in a cluster, found by the labels of the chart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halcyon.kube.kinds import Kind
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube.client import Cluster

SELECTOR = "app.kubernetes.io/name=halcyon,app.kubernetes.io/component=operator"


def of_operators(cluster: Cluster, kind: Kind) -> list[Mapping[str, Any]]:
    """Return the operators' objects of a kind in all namespaces.

    If the user may not list them in all namespaces, return those in the client's namespace.

    Raises:
        ClusterError: the user may not list them in the client's namespace either.
    """
    try:
        objects = cluster.items(kind, selector=SELECTOR, all_namespaces=True)
    except ClusterError:
        objects = cluster.items(kind, selector=SELECTOR)
    return list(objects or ())


def only_operator(cluster: Cluster, kind: Kind) -> Mapping[str, Any]:
    """Return the object of the only operator. If there are several operators, return the one in the client's namespace.

    Raises:
        ClusterError: there is no operator, or there are several and none is in the client's namespace.
    """
    objects = of_operators(cluster, kind)
    if not objects:
        raise ClusterError(
            "no operator was found; if you may list its namespace only, give it with -n, for example -n halcyon-system"
        )
    candidates = [obj for obj in objects if obj["metadata"]["namespace"] == cluster.namespace] or objects
    namespaces = sorted({str(obj["metadata"]["namespace"]) for obj in candidates})
    if len(namespaces) > 1:
        raise ClusterError(
            f"there are operators in {', '.join(namespaces)}; choose one, for example -n {namespaces[0]}"
        )
    return candidates[0]
