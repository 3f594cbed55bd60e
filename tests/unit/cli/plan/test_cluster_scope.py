"""The spec that a model in the cluster would have after `kubectl apply`, which `halcyon plan` previews."""

from __future__ import annotations

import json
from typing import Any

import pytest

from halcyon_cli.plan.cluster_scope import LAST_APPLIED, spec_after_apply

MODEL = {"source": {"uri": "s3://models/m"}}
SCALING = {"minReplicas": 1, "maxReplicas": 8}


def live(spec: dict[str, Any], last: dict[str, Any] | None) -> dict[str, Any]:
    annotations = {} if last is None else {LAST_APPLIED: json.dumps({"spec": last})}
    return {"metadata": {"name": "m", "annotations": annotations}, "spec": spec}


@pytest.mark.parametrize(
    ("stored", "last", "document", "expected"),
    [
        # A pause sets the mode, and scaling the replicas.
        ({"scaling": SCALING | {"mode": "Paused"}, "replicas": 4}, {"scaling": SCALING}, {"scaling": {"maxReplicas": 9}}, {"scaling": {"maxReplicas": 9, "mode": "Paused"}, "replicas": 4}),
        ({"batching": {"maxBatchSize": 8}}, {"batching": {"maxBatchSize": 8}}, {}, {}),
        ({"replicas": 4}, {"replicas": 2}, {}, {}),
        ({"scaling": SCALING}, {"scaling": SCALING}, {"replicas": 2}, {"replicas": 2}),
        # Without the annotation, only the replicas stay.
        ({"scaling": SCALING | {"mode": "Paused"}, "replicas": 4}, None, {"scaling": SCALING}, {"scaling": SCALING, "replicas": 4}),
    ],
)  # fmt: skip
def test_fields_that_others_have_set_stay_in_an_apply(
    stored: dict[str, Any], last: dict[str, Any] | None, document: dict[str, Any], expected: dict[str, Any]
) -> None:
    before = live({"model": MODEL, **stored}, None if last is None else {"model": MODEL, **last})
    assert spec_after_apply(before, {"model": MODEL, **document}) == {"model": MODEL, **expected}
