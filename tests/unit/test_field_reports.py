"""Field reports that a pure function can be tried with; docs/quality/field-reports.md has all, each test its number there."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from benchmarks.right.canary import run
from benchmarks.right.simulated_canary import Rollout
from halcyon.api.spec.parse import SpecError, parse
from halcyon.signals.prometheus.source import PrometheusSource
from halcyon.triton.client import parse_metrics
from tests.unit.api.spec_cases import PVC
from tests.unit.render import rendered
from tests.unit.signals.prometheus.test_source import NOW, SITE
from tests.unit.test_tree import ROOT


def deployment(spec: dict[str, Any]) -> dict[str, Any]:
    found = rendered.children(parse("digits", {"model": {"source": PVC}, **spec}))
    return next(one for one in found if one["kind"] == "Deployment" and one["metadata"]["name"] == "digits-a")


def triton(spec: dict[str, Any]) -> dict[str, Any]:
    containers: list[dict[str, Any]] = deployment(spec)["spec"]["template"]["spec"]["containers"]
    return next(one for one in containers if one["name"] == "triton")


def test_1_a_load_may_take_as_long_as_startup_timeout() -> None:
    probe = triton({"runtime": {"startupTimeout": "30m"}})["startupProbe"]
    assert probe["failureThreshold"] * probe["periodSeconds"] >= 1800


def test_2_the_liveness_probe_does_not_depend_on_the_model() -> None:
    made = triton({})
    assert made["livenessProbe"]["httpGet"]["path"] == "/v2/health/live"
    # A server that doesn't respond is given 30 s: each try waits for its time-out.
    assert made["livenessProbe"]["timeoutSeconds"] * made["livenessProbe"]["failureThreshold"] >= 30


def test_17_shared_memory_has_the_size_that_the_spec_states() -> None:
    pod = deployment({"runtime": {"sharedMemory": "8Gi"}})["spec"]["template"]["spec"]
    assert {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}} in pod["volumes"]
    assert "/dev/shm" in {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}


def test_30_counters_of_an_ensembles_parts_are_not_counted() -> None:
    page = "\n".join(
        f'nv_inference_request_success{{model="{model}",version="1"}} {count}'
        for model, count in (("whole", 100), ("head", 900), ("backbone", 100))
    )
    assert parse_metrics(page, "whole").succeeded == 100


def test_45_a_pod_is_ready_only_if_its_model_is() -> None:
    assert triton({})["readinessProbe"]["httpGet"]["path"] == "/v2/models/digits/ready"


def test_51_zero_replicas_are_a_minimum_like_any_other() -> None:
    scaling = {"minReplicas": 0, "maxReplicas": 3, "targets": {"latency": "500ms"}}
    spec = parse("digits", {"model": {"source": PVC}, "scaling": scaling})
    assert spec.scaling is not None
    assert spec.scaling.min_replicas == 0


def test_56_a_good_canary_is_promoted_by_evidence() -> None:
    found = run(Rollout(1), limit_s=90)
    assert found.ended_s is not None


@pytest.mark.parametrize("uri", ["models/digits", "digits", "kserve-lab/kserve-lab/gemma-2b"])
def test_59_an_address_without_a_scheme_is_rejected_with_an_example(uri: str) -> None:
    with pytest.raises(SpecError) as error:
        parse("digits", {"model": {"source": {"uri": uri}}})
    assert "spec.model.source.uri" in str(error.value)
    assert uri in str(error.value)


def test_66_a_change_of_the_count_does_not_change_the_pods() -> None:
    one, many = deployment({"replicas": 1}), deployment({"replicas": 7})
    assert one["spec"]["template"] == many["spec"]["template"]
    assert (one["spec"]["replicas"], many["spec"]["replicas"]) == (1, 7)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
async def test_74_a_value_that_is_no_number_is_missing(value: str) -> None:
    assert await PrometheusSource(SITE, query=lambda *_: [{"metric": {}, "value": [NOW, value]}]).value("x") is None


async def test_73_an_empty_result_is_missing_and_not_zero() -> None:
    assert await PrometheusSource(SITE, query=lambda *_: []).value("x") is None


def test_92_the_scale_subresource_has_a_selector() -> None:
    crd = yaml.safe_load((ROOT / "crds" / "modeldeployments.serving.halcyon.dev.yaml").read_text())
    for version in crd["spec"]["versions"]:
        assert version["subresources"]["scale"]["labelSelectorPath"] == ".status.selector"
