"""APIService of external.metrics.k8s.io: its registered server, and the CA bundle if this server is Halcyon.

The Helm chart creates the APIService. The operator writes only its `caBundle`.
"""

from __future__ import annotations

import base64
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from halcyon.kube.kinds import API_SERVICE, HPA

if TYPE_CHECKING:  # the command line has this module without the client
    from halcyon.kube.client import Kube

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExternalMetricsApi:
    """Server that is registered for external.metrics.k8s.io, and whether HPAs of this cluster support a tolerance."""

    ours: bool | None
    """Whether the server is this operator; None if unknown."""
    why: str
    tolerance: bool | None = None
    """Whether the API server stores an HPA's field `tolerance`; None if unknown. If it doesn't, HPAs ignore deviations of up to 10 %."""


UNKNOWN = ExternalMetricsApi(ours=None, why="not determined yet")
NAME = "v1beta1.external.metrics.k8s.io"
NAMESPACED = ExternalMetricsApi(
    ours=False,
    why="this Halcyon is limited to namespaces (--watch-namespace), and external.metrics.k8s.io is cluster-wide",
)


async def find_server(client: Kube, *, namespace: str, service: str) -> ExternalMetricsApi:
    """Return the server that is registered for the API, with a description of it.

    Raises:
        ApiError, Unreachable: the APIService can't be read.
    """
    registered = await client.get(API_SERVICE, "", NAME)
    if registered is None:
        return ExternalMetricsApi(ours=False, why="external.metrics.k8s.io is not served (no APIService is registered)")
    target = (registered.get("spec") or {}).get("service") or {}
    serves = f"{target.get('namespace')}/{target.get('name')}"
    if serves != f"{namespace}/{service}":
        return ExternalMetricsApi(ours=False, why=f"external.metrics.k8s.io is served by {serves}")
    return ExternalMetricsApi(ours=True, why="Halcyon serves external.metrics.k8s.io")


async def keeps_tolerance(client: Kube, *, namespace: str) -> bool:
    """Return True if HPAs of this cluster can have a tolerance of 0.

    This is tested with a dry run, so nothing is written.

    Raises:
        ApiError, Unreachable: the dry run failed, so the result is unknown.
    """
    rules, target = {"tolerance": "0"}, {"type": "AverageValue", "averageValue": "1"}
    probe = {
        "apiVersion": HPA.api_version,
        "kind": HPA.kind,
        "metadata": {"name": "halcyon-tolerance-probe", "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "none"},
            "maxReplicas": 2,
            "metrics": [{"type": "External", "external": {"metric": {"name": "none"}, "target": target}}],
            "behavior": {"scaleUp": rules, "scaleDown": rules},
        },
    }
    created = await client.create(HPA, probe, namespace=namespace, dry_run=True)
    behavior = created["spec"].get("behavior") or {}
    return all("tolerance" in (behavior.get(direction) or {}) for direction in ("scaleUp", "scaleDown"))


async def trust(client: Kube, ca_pem: str) -> None:
    """Write the CA bundle to the APIService, unless it is there already.

    With the CA bundle, the API server trusts the operator's certificates.
    """
    bundle = base64.b64encode(ca_pem.encode()).decode()
    service = await client.get(API_SERVICE, "", NAME)
    if service is None or (service.get("spec") or {}).get("caBundle") == bundle:
        return
    await client.patch(API_SERVICE, "", NAME, {"spec": {"caBundle": bundle}})
    log.info("updated the caBundle", extra={"apiservice": NAME})
