"""Detection of newer fields of pods that this cluster doesn't support.

A field is checked by a dry run once a model uses it, because versions and feature gates of clusters differ.
"""

# | field | by default from | an older API server |
# | --- | --- | --- |
# | image volumes | Kubernetes 1.35 (KEP-4639) | drops it, and then rejects the volume, which has no source left |
# | resource claims | Kubernetes 1.34 (KEP-4381) | drops it |

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from halcyon.kube import errors
from halcyon.kube.client import Kube, Object
from halcyon.kube.clock import SYSTEM_CLOCK, Clock
from halcyon.kube.kinds import DEPLOYMENT

log = logging.getLogger(__name__)

RECHECK_INTERVAL_S = 60.0
"""Minimum time between two checks while support is missing or unknown, in seconds. The check is repeated because API
servers may be upgraded while operators run."""
_DROPPED_VOLUME = "spec.template.spec.volumes[0]: Required value"
"""Part of the message with which an API server rejects the probe after it has dropped the volume's source. If an
admission policy rejects the probe, the HTTP status is the same, but support for the field stays unknown."""


@dataclass(frozen=True)
class PodField:
    """Newer field of pods, and how to detect whether the cluster supports it."""

    pod: Object
    """Part of a pod's spec that contains the field."""
    is_kept: Callable[[Object], bool]
    """Function that returns whether the spec of a created pod still contains the newer field."""
    lacking: str
    """Message to users of a cluster whose API server drops the field."""


IMAGE_VOLUMES = PodField(
    {"volumes": [{"name": "model", "image": {"reference": "none"}}]},
    lambda pod: any("image" in volume for volume in pod.get("volumes") or ()),
    "spec.model.source is of kind image, but this cluster's API server does not support image "
    "volumes (they need Kubernetes 1.35 or newer, or the feature gate ImageVolume); for example "
    "source: {persistentVolumeClaim: {claimName: models}}",
)
RESOURCE_CLAIMS = PodField(
    {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "none"}]},
    lambda pod: bool(pod.get("resourceClaims")),
    "spec.runtime.gpu.resourceClaimTemplateName is set, but this cluster's API server does not support resource "
    "claims (they need Kubernetes 1.34 or newer, or the feature gate DynamicResourceAllocation); for example "
    "gpu: {count: 1}",
)


@dataclass
class PodFieldSupport:
    """Check of the cluster's support for one field of pods, with its last result."""

    client: Kube
    pod_field: PodField
    clock: Clock = SYSTEM_CLOCK
    """Monotonic clock for the time since the last check."""
    _is_supported: bool | None = field(default=None, init=False)
    _checked_at: float | None = field(default=None, init=False)
    _checking: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def lacking(self, namespace: str) -> str:
        """Return a message if a check has shown that the cluster doesn't support the field; otherwise "".

        If a later check fails, the last result stays. Without a result, a missing field shows in the pods' status.
        """
        async with self._checking:  # other models wait for the result of a check in progress
            now = self.clock.monotonic()
            if self._checked_at is None or (not self._is_supported and now - self._checked_at >= RECHECK_INTERVAL_S):
                result, self._checked_at = await self._check(namespace), now
                self._is_supported = self._is_supported if result is None else result
        return self.pod_field.lacking if self._is_supported is False else ""

    async def _check(self, namespace: str) -> bool | None:
        try:
            probe = _probe(namespace, self.pod_field.pod)
            created = await self.client.create(DEPLOYMENT, probe, namespace=namespace, dry_run=True)
        except (errors.ApiError, errors.Unreachable) as error:
            if isinstance(error, errors.Refused) and _DROPPED_VOLUME in str(error):
                return False
            log.warning("cannot find out whether the cluster supports what a pod needs", extra={"error": str(error)})
            return None
        return self.pod_field.is_kept(created["spec"]["template"]["spec"])


def _probe(namespace: str, pod: Object) -> Object:
    labels = {"app": "halcyon-pod-field-probe"}
    return {
        "apiVersion": DEPLOYMENT.api_version,
        "kind": DEPLOYMENT.kind,
        "metadata": {"name": labels["app"], "namespace": namespace},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "none", "image": "none"}], **pod},
            },
        },
    }
