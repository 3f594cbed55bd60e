"""A model with its Deployment and a ConfigMap NAME-capacity, in caches."""

from __future__ import annotations

import json
from typing import Any

from halcyon.api.documents.measured_capacity import KEY
from halcyon.api.documents.model_overlay import Overlay
from halcyon.api.spec.parse import parse
from halcyon.control.state.measured_capacities import MeasuredCapacities
from halcyon.control.state.scope import Measured
from halcyon.kube import kinds
from halcyon.render import names
from tests.unit.control.scope_builders import PVC
from tests.unit.control.state.manual_caches import DIGITS, ManualCaches, labelled

IMAGE = "localhost/tritonserver:24.10"
LINE = {"instances": 2, "constantMilliseconds": 80, "perRowMilliseconds": 6, "maxBatchSize": 8}
DOCUMENT: dict[str, Any] = {
    "version": 1, "source": "bench", "measuredAt": "2026-11-28T03:15:00Z", "revision": "digits-5d7c", "image": IMAGE, "lines": [LINE]
}  # fmt: skip
SPEC = parse("digits", {"model": {"source": PVC}, "runtime": {"instancesPerGPU": 2}})


class Model:
    """A model with its Deployment."""

    def __init__(self, **pod: Any) -> None:
        self.at = ManualCaches()
        self.deploy(**pod)
        self.measured = MeasuredCapacities(self.at.caches)

    def deploy(self, revision: str = "5d7c", *, slot: str = "a", created: str = "", **pod: Any) -> None:
        template = {
            "metadata": {"labels": {names.REVISION_LABEL: revision}},
            "spec": {"containers": [{"name": "triton", "image": IMAGE}], **pod},
        }
        spec = {"replicas": 0, "template": template}
        deployment = labelled(kinds.DEPLOYMENT, f"digits-{slot}", "digits", spec=spec)
        deployment["metadata"]["creationTimestamp"] = created
        self.at.store(self.at.caches.children[kinds.DEPLOYMENT], deployment)

    def store_revision(self, revision: str = "5d7c", *, instances: int) -> None:
        """Store the record of a revision whose pods have this many instances."""
        overlay = Overlay("digits", instances=instances).to_json()
        data = {
            "format": 1, "key": revision, "template": {}, "model": "digits", "overlay": overlay, "snapshot": "",
            "startupTimeoutSeconds": 600,
        }  # fmt: skip
        record = labelled(kinds.CONTROLLER_REVISION, names.revision("digits", revision), "digits", data=data)
        self.at.store(self.at.caches.children[kinds.CONTROLLER_REVISION], record)

    def teach(self, text: str | None = None, *, name: str = "digits-capacity", **changes: Any) -> None:
        data = {KEY: json.dumps({**DOCUMENT, **changes}) if text is None else text}
        config_map = labelled(kinds.CONFIG_MAP, name, "digits", data=data)
        self.at.store(self.at.caches.children[kinds.CONFIG_MAP], config_map)

    def capacity(self) -> Measured:
        return self.measured.of(DIGITS, SPEC)
