"""Whether this cluster supports image volumes. Detected by a dry run once a model uses one, because versions and feature gates differ.

API servers support them by default from 1.35 on (KEP-4639). An older one drops the field, and then rejects a volume without a source.
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
"""Minimum time between checks while support is missing or unknown: API servers are upgraded while operators run."""
LACKING = (
    "spec.model.source is of the kind image, and this cluster's API server has no image volumes (Kubernetes 1.35 and newer have them, or "
    "the feature gate ImageVolume); for example source: {persistentVolumeClaim: {claimName: models}}"
)
_UNPROCESSABLE = 422


@dataclass
class ImageVolumeSupport:
    """The check for image volumes, with its last result."""

    client: Kube
    clock: Clock = SYSTEM_CLOCK
    """Monotonic, in seconds."""
    _there: bool | None = field(default=None, init=False)
    _asked_at: float | None = field(default=None, init=False)

    async def lacking(self, namespace: str) -> str:
        """Return a sentence if image volumes are missing; empty if they are supported or that is unknown (then the pods' status shows it)."""
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
            log.warning("whether there are image volumes isn't known", extra={"error": str(error)})
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
