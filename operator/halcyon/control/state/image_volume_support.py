"""Whether this cluster's pods can have image volumes: found out when a model asks for one, by a dry run, since versions and feature gates differ.

By default API servers have them from 1.35 on (KEP-4639). An older one drops the field and then refuses a volume that is nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from halcyon.kube import errors
from halcyon.kube.client import Kube, Object
from halcyon.kube.kinds import DEPLOYMENT

log = logging.getLogger(__name__)

AGAIN_S = 60.0
"""Where there are none, or it isn't known, it is asked again no sooner: API servers are upgraded while operators run."""
LACKING = (
    "spec.model.source is of the kind image, and this cluster's API server has no image volumes (Kubernetes 1.35 and newer have them, or "
    "the feature gate ImageVolume); for example source: {persistentVolumeClaim: {claimName: models}}"
)
_UNPROCESSABLE = 422


@dataclass
class ImageVolumeSupport:
    """Asks the API server, and keeps the answer."""

    client: Kube
    clock: Callable[[], float] = time.monotonic
    """In seconds."""
    _there: bool | None = field(default=None, init=False)
    _asked_at: float | None = field(default=None, init=False)

    async def lacking(self, namespace: str) -> str:
        """A sentence where there are none; empty where there are, or it isn't known: then the pods will tell."""
        now = self.clock()
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
