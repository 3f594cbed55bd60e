from __future__ import annotations

from typing import Any

import pytest

from halcyon.api.spec.parse import parse
from halcyon.control.acceptance.scaling_mode import is_active

_SPEC = {"model": {"source": {"persistentVolumeClaim": {"claimName": "models"}}}}


def resource(scaling: dict[str, Any] | None, *, accepted: str, of_generation: int = 2) -> dict[str, Any]:
    conditions = [{"type": "Accepted", "status": accepted, "observedGeneration": of_generation}]
    spec = {} if scaling is None else {"scaling": scaling}
    return {"metadata": {"generation": 2}, "spec": spec, "status": {"conditions": conditions}}


@pytest.mark.parametrize(
    ("accepted_mode", "scaling", "accepted", "of_generation", "active"),
    [
        ("Active", {"mode": "Active"}, "True", 2, True),
        ("Active", {"maxReplicas": 4}, "True", 2, True),
        ("Active", {"mode": "Paused"}, "True", 1, False),
        ("Active", {"mode": "Paused"}, "True", 2, False),
        ("Active", {"mode": "Paused"}, "False", 1, False),
        ("Active", {"mode": "Paused"}, "False", 2, True),
        ("Active", None, "True", 1, False),
        ("Active", None, "False", 2, True),
        ("Paused", {"mode": "Active"}, "True", 1, False),
        ("Paused", {"mode": "Paused"}, "True", 2, False),
        ("Recommend", {"mode": "Active"}, "False", 2, False),
    ],
)
def test_a_model_is_scaled_by_the_table(
    *, accepted_mode: str, scaling: dict[str, Any] | None, accepted: str, of_generation: int, active: bool
) -> None:
    spec = parse("m", _SPEC | {"scaling": {"maxReplicas": 4, "mode": accepted_mode}})

    assert is_active(resource(scaling, accepted=accepted, of_generation=of_generation), spec) is active


def test_a_model_without_an_accepted_spec_or_scaling_is_not_scaled() -> None:
    model = resource({"mode": "Active"}, accepted="True")

    assert not is_active(model, None)
    assert not is_active(model, parse("m", _SPEC))
