"""Generator of the CustomResourceDefinition from the models: `python -m generators.crd` prints it."""

from __future__ import annotations

import sys
from typing import Any

import yaml

from halcyon.api.schema.structural_schema import JsonSchema, schema
from halcyon.api.spec import Spec
from halcyon.api.status import Status
from halcyon.api.types import GROUP, KIND, NAME_MESSAGE, NAME_PATTERN, PLURAL, VERSION, cel_string

_COLUMNS = (
    ("Status", "string", ".status.summary.state", "Reason of the most important condition", 0),
    ("Ready", "string", ".status.summary.ready", "Ready pods and current replica count", 0),
    ("Desired", "string", ".status.summary.desired", "Desired replicas", 0),
    ("Range", "string", ".status.summary.range", "Minimum and maximum replicas", 0),
    ("Age", "date", ".metadata.creationTimestamp", "", 0),
    ("Queue", "string", ".status.summary.queue", "Queued requests, and the target for all ready pods", 1),
    ("GPU%", "string", ".status.summary.gpu", "Mean GPU utilisation of the ready pods, in percent", 1),
    ("Batch", "string", ".status.summary.batch", "Mean number of rows in a batch", 1),
    ("URL", "string", ".status.address.url", "URL of the model inside the cluster", 1),
    ("Image", "string", ".status.runtimeImage", "Triton image", 1),
    ("Policy", "string", ".status.scaling.policy", "Scaling policy", 1),
    ("Actuator", "string", ".status.scaling.actuator", "Component that writes spec.replicas", 1),
    ("Scaled", "date", ".status.scaling.decisions[0].time", "Time since the desired replicas last changed", 1),
    (
        "Capacity",
        "string",
        ".status.capacity.sustainedRequestsPerSecond",
        "Requests per second of one replica within the objective",
        1,
    ),
)


def build() -> dict[str, Any]:
    """Return the CustomResourceDefinition as a dict."""
    name_rule = {
        "rule": f"self.metadata.name.matches({cel_string(NAME_PATTERN)})",
        "messageExpression": cel_string(NAME_MESSAGE) + ".format([self.metadata.name, self.metadata.name.size()])",
        "message": f"metadata.name must match {NAME_PATTERN}",
        "reason": "FieldValueInvalid",
    }
    root: JsonSchema = {
        "description": "A model served by NVIDIA Triton pods behind a load balancer, and scaled automatically with its load.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": schema(Spec),
            # Initial status, until the operator has processed an object. Tools that wait with kstatus (Helm, Flux, Argo
            # CD) treat an object without a status as ready.
            "status": schema(Status) | {"default": {"observedGeneration": 0}},
        },
        "x-kubernetes-validations": [name_rule],
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": root},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path}
            | ({"description": description} if description else {})
            | ({"priority": priority} if priority else {})
            for name, kind, path, description, priority in _COLUMNS
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["mdep"],
                "categories": ["all"],
            },
            "versions": [version],
        },
    }


def to_yaml() -> str:
    """Return the CustomResourceDefinition as YAML, the content of the file in crds/."""

    class _Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # the signature is PyYAML's
            return True

    head = "# Generated from operator/halcyon/api by `make crds`. Do not edit.\n"
    return head + yaml.dump(build(), Dumper=_Plain, sort_keys=False, width=120)


if __name__ == "__main__":
    sys.stdout.write(to_yaml())
