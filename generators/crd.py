"""Generator of the CustomResourceDefinitions from the models: `python -m generators.crd [KIND]` prints one of them."""

from __future__ import annotations

import sys
from typing import Any

import yaml

from generators.field_descriptions import described_schema
from halcyon.api.batch_inference import BatchInferenceSpec, BatchInferenceStatus
from halcyon.api.schema.structural_schema import JsonSchema
from halcyon.api.spec import Spec
from halcyon.api.status import Status
from halcyon.api.types import (
    BATCH_KIND,
    BATCH_PLURAL,
    GROUP,
    KIND,
    NAME_MESSAGE,
    NAME_PATTERN,
    PLURAL,
    VERSION,
    cel_string,
)

_COLUMNS = (
    ("Status", "string", ".status.summary.state", "Reason of the most important condition", 0),
    ("Ready", "string", ".status.summary.ready", "Ready pods and the current number of replicas, for example 2/3", 0),
    ("Desired", "string", ".status.summary.desired", "Desired replicas", 0),
    ("Range", "string", ".status.summary.range", "Minimum and maximum replicas, for example 1-8", 0),
    ("Age", "date", ".metadata.creationTimestamp", "", 0),
    (
        "Queue",
        "string",
        ".status.summary.queue",
        "Queued requests and, after a slash, their total target across all ready pods, for example 12/48",
        1,
    ),
    ("GPU%", "string", ".status.summary.gpu", "Mean GPU utilisation of the ready pods, in percent", 1),
    ("Batch", "string", ".status.summary.batch", "Mean number of rows in a batch", 1),
    ("URL", "string", ".status.address.url", "URL of the model inside the cluster", 1),
    ("Image", "string", ".status.runtimeImage", "Triton image of the server pods", 1),
    ("Policy", "string", ".status.scaling.policy", "Scaling policy: Planner or Rules", 1),
    (
        "Actuator",
        "string",
        ".status.scaling.actuator",
        "Component that writes spec.replicas: HPA, or Direct (the operator)",
        1,
    ),
    ("Scaled", "date", ".status.scaling.decisions[0].time", "Time since the desired replicas last changed", 1),
    (
        "Capacity",
        "string",
        ".status.capacity.sustainedRequestsPerSecond",
        "Requests per second that one replica can answer within the latency target or, without a target, at 80 % utilisation",
        1,
    ),
)
_BATCH_COLUMNS = (
    ("Model", "string", ".spec.modelDeployment", "ModelDeployment that computes the rows", 0),
    (
        "Status",
        "string",
        '.status.conditions[?(@.type=="Complete")].reason',
        "State of the batch: the reason of the condition Complete",
        0,
    ),
    ("Done", "string", ".status.progress", "Rows done or failed, out of all rows of the data set", 0),
    ("Failures", "integer", ".status.rows.failed", "Rows without a result", 0),
    ("Rate", "string", ".status.rate", "Rows per second", 0),
    ("ETA", "string", ".status.eta", "Time at which the batch will be complete", 0),
    ("Age", "date", ".metadata.creationTimestamp", "", 0),
    ("Message", "string", ".status.conditions[0].message", "Message of the condition that matters most", 1),
)
_NAME_RULE = {
    "rule": f"self.metadata.name.matches({cel_string(NAME_PATTERN)})",
    "messageExpression": cel_string(NAME_MESSAGE) + ".format([self.metadata.name, self.metadata.name.size()])",
    "message": f"metadata.name must match {NAME_PATTERN}",
    "reason": "FieldValueInvalid",
}


def build() -> dict[str, Any]:
    """Return the CustomResourceDefinition of ModelDeployments as a dict."""
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    return _definition(
        "A model served by NVIDIA Triton pods behind a load balancer, and scaled automatically with its load.",
        described_schema(Spec),
        described_schema(Status),
        _COLUMNS,
        names=(KIND, PLURAL, "mdep"),
        subresources={"scale": scale},
    )


def build_batch() -> dict[str, Any]:
    """Return the CustomResourceDefinition of BatchInferences as a dict."""
    return _definition(
        "A data set that goes through a served model beside its users.",
        described_schema(BatchInferenceSpec),
        described_schema(BatchInferenceStatus),
        _BATCH_COLUMNS,
        names=(BATCH_KIND, BATCH_PLURAL, "batchinf"),
        subresources={},
    )


def _definition(
    description: str,
    spec: JsonSchema,
    status: JsonSchema,
    columns: tuple[tuple[str, str, str, str, int], ...],
    *,
    names: tuple[str, str, str],
    subresources: dict[str, Any],
) -> dict[str, Any]:
    root: JsonSchema = {
        "description": description,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _in_crd_form(spec),
            # Initial status, until the operator has processed an object. Tools that wait with kstatus (Helm, Flux, Argo
            # CD) treat an object without a status as ready.
            "status": status | {"default": {"observedGeneration": 0}},
        },
        "x-kubernetes-validations": [_NAME_RULE],
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": root},
        "subresources": {"status": {}} | subresources,
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path}
            | ({"description": description} if description else {})
            | ({"priority": priority} if priority else {})
            for name, kind, path, description, priority in columns
        ],
    }
    kind, plural, short = names
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": ["all"],
            },
            "versions": [version],
        },
    }


def _in_crd_form(schema: JsonSchema, *, item: bool = False) -> JsonSchema:
    """Return a schema in the form of a CRD, without the defaults of fields in list items, which the operator adds when it parses a spec.

    Argo CD compares each list of a custom resource as a whole. If the API server added a field to an item, the object
    would differ from its manifest after every sync.
    """
    changed = {key: value for key, value in schema.items() if key != "default" or not item}
    if changed.get("x-kubernetes-int-or-string"):  # a structural schema gives such a field no type of its own
        del changed["type"]
    if "properties" in schema:
        changed["properties"] = {name: _in_crd_form(field, item=item) for name, field in schema["properties"].items()}
    if "items" in schema:
        changed["items"] = _in_crd_form(schema["items"], item=True)
    return changed


def to_yaml(definition: dict[str, Any] | None = None) -> str:
    """Return a CustomResourceDefinition, by default that of ModelDeployments, as YAML for the file in crds/."""

    class _Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # the signature is PyYAML's
            return True

    head = "# Generated from operator/halcyon/api by `make crds`. Do not edit.\n"
    return head + yaml.dump(definition or build(), Dumper=_Plain, sort_keys=False, width=120)


if __name__ == "__main__":
    sys.stdout.write(to_yaml(build_batch() if sys.argv[1:] == [BATCH_KIND] else build()))
