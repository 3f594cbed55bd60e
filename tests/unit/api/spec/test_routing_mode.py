"""What a spec can't ask for without balancers, and what it says in vain."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon.api.spec import defaults
from halcyon.api.spec.parse import SpecError, parse
from tests.unit.api.spec_cases import PVC


def spec(mode: str, traffic: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"model": {"source": PVC}, "traffic": {"mode": mode, **(traffic or {})}, **fields}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"scaling": {"minReplicas": 0, "maxReplicas": 2}},
            (
                "spec.scaling.minReplicas is 0 but spec.traffic.mode is Direct: only balancers "
                "hold requests while a model scales up from zero; set minReplicas: 1 or mode: Balancer"
            ),
        ),
        (
            {"rollout": {"strategy": "Canary"}},
            (
                "spec.rollout.strategy is Canary but spec.traffic.mode is Direct: a Service cannot "
                "split traffic between revisions; set strategy: Auto or mode: Balancer"
            ),
        ),
        (
            {"traffic": {"mode": "Direct", "stickiness": {"header": "x-user"}}},
            (
                "spec.traffic.stickiness is set but spec.traffic.mode is Direct: only balancers "
                "route by header; set mode: Balancer or remove stickiness"
            ),
        ),
    ],
)
def test_features_of_a_balancer_are_refused_without_one(fields: dict[str, Any], message: str) -> None:
    document = spec("Direct") | fields
    with pytest.raises(SpecError) as refused:
        parse("digits", document)

    assert message in str(refused.value)
    assert parse("digits", {**document, "traffic": {**document["traffic"], "mode": "Balancer"}})


def test_fields_that_only_a_balancer_follows_are_reported_as_ineffective() -> None:
    traffic = {
        "balancerReplicas": 3,
        "queueLimit": 9,
        "queueTimeout": "9s",
        "responseTimeout": "9s",
        "drainTimeout": "9s",
    }
    ignored = defaults.ignored(parse("digits", spec("Direct", traffic)))

    assert {text.partition(":")[0] for text in ignored} == {
        "spec.traffic.balancerReplicas", "spec.traffic.queueLimit", "spec.traffic.queueTimeout", "spec.traffic.responseTimeout",
    }  # fmt: skip
    assert defaults.ignored(parse("digits", spec("Balancer", traffic))) == ()
    assert defaults.ignored(parse("digits", spec("Direct"))) == ()


@pytest.mark.parametrize(("size", "is_ignored"), [("64Mi", False), ("1Mi", True), ("65Mi", False), ("1Gi", False)])
def test_a_request_size_above_tritons_own_limit_needs_no_balancer(size: str, is_ignored: bool) -> None:
    ignored = defaults.ignored(parse("digits", spec("Direct", {"maxRequestSize": size})))
    assert any(text.startswith("spec.traffic.maxRequestSize: ignored") for text in ignored) is is_ignored
