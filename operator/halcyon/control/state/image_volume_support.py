"""Detection of image volumes: whether the cluster's API server supports them, found by a dry run when a model first uses one.

The version of the API server isn't enough, because a feature gate can change the default. Image volumes are on by default from
Kubernetes 1.35 (KEP-4639). An API server without them drops the field `image`, and then rejects the volume, which has no source.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from halcyon.kube import errors
from halcyon.kube.client import Kube, Object
from halcyon.kube.clock import SYSTEM_CLOCK, Clock
from halcyon.kube.kinds import DEPLOYMENT

log = logging.getLogger(__name__)

AGAIN_S = 60.0
"""Minimum time between two checks while support is missing or unknown, in seconds: an API server may be upgraded at any time."""
LACKING = (
    "spec.model.source is of kind image, but this cluster's API server does not support image "
    "volumes (they need Kubernetes 1.35 or newer, or the feature gate ImageVolume); for example "
    "source: {persistentVolumeClaim: {claimName: models}}"
)
_UNPROCESSABLE = 422


@dataclass
class ImageVolumeSupport:
    """Check for image volumes, with its last result."""

    client: Kube
    clock: Clock = SYSTEM_CLOCK
    """Clock for the time since the last check."""
    _there: bool | None = field(default=None, init=False)
    _asked_at: float | None = field(default=None, init=False)

    async def lacking(self, namespace: str) -> str:
        """Return a sentence if the cluster doesn't support image volumes; empty if it does, or if that is unknown.

        If it is unknown and they aren't supported, the status of the pods shows the error.
        """
        now = self.clock.monotonic()
        if self._asked_at is None or (not self._there and now - self._asked_at >= AGAIN_S):
            self._asked_at = now
            self._there = await self._ask(namespace)
        return LACKING if self._there is False else ""

    async def _ask(self, namespace: str) -> bool | None:
        try:
            made = await self.client.create(DEPLOYMENT, _probe(namespace), namespace=namespace, dry_run=True)
        except (errors.ApiError, errors.Unreachable) as error:
            if isinstance(error, errors.Refused) and error.status == _UNPROCESSABLE:
                return False
            log.warning("cannot detect whether the cluster supports image volumes", extra={"error": str(error)})
            return None
        return any("image" in volume for volume in made["spec"]["template"]["spec"].get("volumes") or ())


def _probe(namespace: str) -> Object:
    labels = {"app": "halcyon-image-volume-probe"}
    return {
        "apiVersion": DEPLOYMENT.api_version,
        "kind": DEPLOYMENT.kind,
        "metadata": {"name": labels["app"], "namespace": namespace},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [{"name": "none", "image": "none"}],
                    "volumes": [{"name": "model", "image": {"reference": "none"}}],
                },
            },
        },
    }
