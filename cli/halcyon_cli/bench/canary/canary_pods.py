"""Check for free capacity for the first pod of a canary, which runs in addition to the only pod of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halcyon.api.stored.replicas_in_force import replicas_in_force
from halcyon.kube import kinds
from halcyon.render import names
from halcyon_cli.bench.place.admission import PlannedPods, Purpose, lacking_devices, lacking_quota, read_quotas
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube import fields
from halcyon_cli.kube.object_writer import ObjectWriter

Json = Mapping[str, Any]

_CANARY = Purpose("a canary", "or apply the patch without --apply")


def lacking_capacity(cluster: ObjectWriter, model: Json) -> str:
    """Return the reason why the cluster has no capacity for a canary; empty if it has, or if the user can't read it.

    With several replicas, a pod of the canary takes the place of another one, so no further capacity is needed.
    """
    name = str(model["metadata"]["name"])
    if replicas_in_force(model) > 1:
        return ""
    pod = _server(cluster, name)
    if pod is None:
        return ""
    shortage = lacking_quota(read_quotas(cluster), [pod], _CANARY)
    try:
        shortage = shortage or lacking_devices(cluster, [pod], _CANARY)
    except ClusterError:
        return ""
    return f"{name} has one replica, and {shortage}" if shortage else ""


def _server(cluster: ObjectWriter, name: str) -> PlannedPods | None:
    """Return a pod of the Deployment that serves, as its template describes it; None if it can't be read."""
    selector = ",".join(f"{key}={value}" for key, value in names.selector(name, names.SERVER).items())
    try:
        deployments = cluster.items(kinds.DEPLOYMENT, selector=selector) or []
    except ClusterError:
        return None
    serving = max(
        deployments,
        key=lambda deployment: fields.count(fields.mapping(deployment.get("spec")).get("replicas")) or 0,
        default=None,
    )
    if serving is None:
        return None
    template = serving["spec"]["template"]
    return PlannedPods("server", template["spec"], template["metadata"], 1)
