"""The server of external.metrics.k8s.io in this cluster and, if it is Halcyon, the CA bundle that the API server trusts.

The APIService belongs to the chart. The operator writes its `caBundle` and nothing else.
"""

from __future__ import annotations

import base64
import logging
from dataclasses import dataclass

from halcyon.kube import errors
from halcyon.kube.client import Kube
from halcyon.kube.kinds import API_SERVICE, HPA

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExternalMetricsApi:
    """The server of external.metrics.k8s.io, and what this cluster's HPAs can do with it."""

    ours: bool
    why: str
    tolerance: bool = False
    """Whether the API server keeps an HPA's `tolerance`: without it an HPA ignores deviations within 10 %."""


UNKNOWN = ExternalMetricsApi(ours=False, why="not determined yet")
NAME = "v1beta1.external.metrics.k8s.io"
NAMESPACED = ExternalMetricsApi(
    ours=False,
    why="this Halcyon is limited to namespaces (--watch-namespace), and external.metrics.k8s.io is cluster-wide",
)


async def find_server(client: Kube, *, namespace: str, service: str) -> ExternalMetricsApi:
    """Return the server of the API, described in a sentence."""
    try:
        registered = await client.get(API_SERVICE, "", NAME)
    except (errors.ApiError, errors.Unreachable) as error:
        return ExternalMetricsApi(ours=False, why=f"it is unknown who serves external.metrics.k8s.io: {error}")
    if registered is None:
        return ExternalMetricsApi(ours=False, why="external.metrics.k8s.io is not served (no APIService is registered)")
    target = (registered.get("spec") or {}).get("service") or {}
    serves = f"{target.get('namespace')}/{target.get('name')}"
    if serves != f"{namespace}/{service}":
        return ExternalMetricsApi(ours=False, why=f"external.metrics.k8s.io is served by {serves}")
    return ExternalMetricsApi(ours=True, why="Halcyon serves external.metrics.k8s.io")


async def keeps_tolerance(client: Kube, *, namespace: str) -> bool | None:
    """Return True if HPAs of this cluster can have a tolerance of 0, None if unknown. A dry run finds out: nothing is written."""
    rules = {"tolerance": "0"}
    probe = {
        "apiVersion": HPA.api_version,
        "kind": HPA.kind,
        "metadata": {"name": "halcyon-tolerance-probe", "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "none"},
            "maxReplicas": 2,
            "metrics": [
                {
                    "type": "External",
                    "external": {"metric": {"name": "none"}, "target": {"type": "AverageValue", "averageValue": "1"}},
                }
            ],
            "behavior": {"scaleUp": rules, "scaleDown": rules},
        },
    }
    try:
        created = await client.create(HPA, probe, namespace=namespace, dry_run=True)
    except (errors.ApiError, errors.Unreachable) as error:
        log.warning("it is unknown whether HPAs support a tolerance", extra={"error": str(error)})
        return None
    behavior = created["spec"].get("behavior") or {}
    return all("tolerance" in (behavior.get(direction) or {}) for direction in ("scaleUp", "scaleDown"))


async def trust(client: Kube, ca_pem: str) -> None:
    """Make the API server trust our certificates; write only if it doesn't yet."""
    bundle = base64.b64encode(ca_pem.encode()).decode()
    service = await client.get(API_SERVICE, "", NAME)
    if service is None or (service.get("spec") or {}).get("caBundle") == bundle:
        return
    await client.patch(API_SERVICE, "", NAME, {"spec": {"caBundle": bundle}})
    log.info("updated the caBundle", extra={"apiservice": NAME})
