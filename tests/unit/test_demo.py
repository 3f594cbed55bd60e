"""Models that the demo and the benchmarks deploy, and what the demo counts as failed."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.dataplane import stage
from demo import figures, footprint, models, serving
from halcyon.api.spec import Spec

REJECTED = "429: more requests for model digits arrive than its pods can answer within 60 ms; retry later"
DOCUMENTS = {
    "digits": models.digits(),
    "replicas": models.variant("digits-three", replicas=3),
    "idle": footprint.idle_model("idle-00"),
    "benchmark": stage.digits("digits", replicas=2, balancers=2),
} | {f"batching {number}": document for number, document in enumerate(serving.compared_models())}


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_deployed_model_has_a_valid_spec(document: dict[str, Any]) -> None:
    spec = Spec.model_validate(document["spec"])
    assert spec.model_dump(by_alias=True, exclude_unset=True).keys() == document["spec"].keys()


@pytest.mark.parametrize(
    ("kinds", "rejected", "failed"),
    [
        ({}, 0, 0),
        ({REJECTED: 8}, 8, 0),
        ({"StatusCode.UNAVAILABLE: no replica is ready": 2, REJECTED: 1}, 1, 2),
        ({"429: the queue of model digits is full; retry later": 3}, 0, 3),
    ],
)
def test_rejections_for_the_objective_are_no_failures(kinds: dict[str, int], rejected: int, failed: int) -> None:
    assert figures.failures(kinds) == {"rejected_requests": rejected, "failed_requests": failed}
