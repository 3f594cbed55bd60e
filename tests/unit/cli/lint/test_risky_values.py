"""Warnings about values that can cause wrong responses, or rejected requests."""

from __future__ import annotations

from typing import Any

from halcyon.api.spec import Spec
from halcyon.api.spec.parse import parse
from halcyon_cli.lint.risky_values import risks

ZERO = {"scaling": {"minReplicas": 0, "maxReplicas": 2}}


def spec(**fields: Any) -> Spec:
    return parse("digits", {"model": {"source": {"persistentVolumeClaim": {"claimName": "m"}}}, **fields})


def test_a_cache_with_stickiness_is_a_risk() -> None:
    cached = {"server": {"responseCache": {"size": "64Mi"}}}
    (sentence,) = risks(spec(runtime=cached, traffic={"stickiness": {"header": "x-sequence-id"}}))
    assert sentence.startswith("spec.runtime.server.responseCache is set with spec.traffic.stickiness")
    assert risks(spec(runtime=cached)) == ()


def test_a_wait_at_zero_below_the_default_is_a_risk() -> None:
    (risk,) = risks(spec(**ZERO, traffic={"queueTimeout": "5s"}))

    assert "spec.traffic.queueTimeout is 5s with spec.scaling.minReplicas 0" in risk
    assert risks(spec(**ZERO, traffic={"queueTimeout": "1m"})) == ()
    assert risks(spec(traffic={"queueTimeout": "5s"})) == ()
