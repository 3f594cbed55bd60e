"""Field reports that a pure function can be tried with; docs/quality/field-reports.md has all, each test its number there."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.right.canary import run
from benchmarks.right.cases import CASES
from benchmarks.right.simulated_canary import Rollout
from halcyon.api.policy.network import SiteNetwork
from halcyon.api.spec.parse import SpecError, parse
from halcyon.api.types import quantity
from halcyon.balancer.config import haproxy_cfg
from halcyon.balancer.config.model import Listen
from halcyon.fetch import mounted_source
from halcyon.metricsapi import documents
from halcyon.model_config import config_pbtxt, merged_config, spec_check
from halcyon.render import model_overlay, network_policies
from halcyon.scaling.hpa.algorithm import milli
from halcyon.scaling.schedules import CronSchedule, in_force
from halcyon.signals.prometheus.source import PrometheusSource
from halcyon.triton.client import parse_metrics
from tests.simulator.planner.driver import Driven
from tests.unit.api.spec_cases import PVC
from tests.unit.balancer.config.test_haproxy_cfg import PLAN
from tests.unit.render import rendered
from tests.unit.signals.prometheus.test_source import NOW, SITE
from tests.unit.test_tree import ROOT
from tests.yaml_text import loaded

WEIGHT_BYTES = 80_000
"""Minutes of load are simulated."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.number)
def test_the_tests_of_a_case_are_in_the_tree(case: Any) -> None:
    for test in case.tests:
        path, _, name = test.partition(" -k ")[0].partition("::")
        assert name in (ROOT / path).read_text(), test


def deployment(spec: dict[str, Any]) -> dict[str, Any]:
    children = rendered.children(parse("digits", {"model": {"source": PVC}, **spec}))
    return next(
        child for child in children if child["kind"] == "Deployment" and child["metadata"]["name"] == "digits-a"
    )


def triton(spec: dict[str, Any]) -> dict[str, Any]:
    containers: list[dict[str, Any]] = deployment(spec)["spec"]["template"]["spec"]["containers"]
    return next(container for container in containers if container["name"] == "triton")


def test_1_a_load_may_take_as_long_as_startup_timeout() -> None:
    probe = triton({"runtime": {"startupTimeout": "30m"}})["startupProbe"]
    assert probe["failureThreshold"] * probe["periodSeconds"] >= 1800


def test_2_the_liveness_probe_does_not_depend_on_the_model() -> None:
    container = triton({})
    assert container["livenessProbe"]["httpGet"]["path"] == "/v2/health/live"
    # A server that doesn't respond is given 30 s: each try waits for its time-out.
    assert container["livenessProbe"]["timeoutSeconds"] * container["livenessProbe"]["failureThreshold"] >= 30


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
    rollout = run(Rollout(1), limit_s=90)
    assert rollout.action == "promote"
    assert rollout.ended_s is not None


@pytest.mark.parametrize("uri", ["models/digits", "digits", "kserve-lab/kserve-lab/gemma-2b"])
def test_59_an_address_without_a_scheme_is_rejected_with_an_example(uri: str) -> None:
    with pytest.raises(SpecError) as error:
        parse("digits", {"model": {"source": {"uri": uri}}})
    assert "spec.model.source.uri" in str(error.value)
    assert uri in str(error.value)


def test_66_a_change_of_the_count_does_not_change_the_pods() -> None:
    single, many = deployment({"replicas": 1}), deployment({"replicas": 7})
    assert single["spec"]["template"] == many["spec"]["template"]
    assert (single["spec"]["replicas"], many["spec"]["replicas"]) == (1, 7)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
async def test_74_a_value_that_is_no_number_is_missing(value: str) -> None:
    assert await PrometheusSource(SITE, query=lambda *_: [{"metric": {}, "value": [NOW, value]}]).value("x") is None


async def test_73_an_empty_result_is_missing_and_not_zero() -> None:
    assert await PrometheusSource(SITE, query=lambda *_: []).value("x") is None


def test_92_the_scale_subresource_has_a_selector() -> None:
    crd = loaded((ROOT / "crds" / "modeldeployments.serving.halcyon.dev.yaml").read_text())
    for version in crd["spec"]["versions"]:
        assert version["subresources"]["scale"]["labelSelectorPath"] == ".status.selector"


def test_4_a_pod_without_balancers_waits_for_its_endpoints_to_go() -> None:
    pod = deployment({"traffic": {"mode": "Direct"}})["spec"]["template"]["spec"]
    command = triton({"traffic": {"mode": "Direct"}})["lifecycle"]["preStop"]["exec"]["command"][-1]
    assert command.startswith("sleep 5;")
    # preStop, the drain of open streams, Triton's own exit timeout, and a margin.
    assert pod["terminationGracePeriodSeconds"] >= 5 + 30 + 30


@pytest.mark.parametrize(
    "field", [{"runtime": {"env": [{"name": "A", "value": "1"}]}}, {"batching": {"maxBatchSize": 4}}]
)
def test_44_a_revision_has_its_own_pods_which_load_once(field: dict[str, Any]) -> None:
    pod = deployment(field)["spec"]["template"]["spec"]
    assert "--model-control-mode=none" in pod["containers"][0]["args"]
    # The repository is written before Triton starts, and belongs to the pod.
    assert {"name": "models", "emptyDir": {}} in pod["volumes"]
    assert deployment(field)["spec"]["template"] != deployment({})["spec"]["template"]


def test_68_replicas_follow_a_queue_that_no_cpu_shows() -> None:
    counts = Driven(replicas=1).run([10.0] * 60 + [40.0] * 60)
    assert counts[59] <= 2
    assert counts[-1] >= 4


def test_69_replicas_fall_to_the_need_without_idle_time() -> None:
    counts = Driven(replicas=12).run([20.0] * 1800)
    assert counts[-1] in {2, 3}


def test_72_replicas_stay_while_a_source_of_signals_fails() -> None:
    driven = Driven(replicas=3)
    before = driven.run([25.0] * 300)[-1]
    blind = driven.run(
        [25.0] * 300, lambda reading: replace(reading, arrived=None, waiting=None, inflight=None, gpu=None)
    )
    assert set(blind) == {before}


def test_76_no_requests_are_a_known_zero() -> None:
    assert Driven(replicas=6).run([0.0] * 1800)[-1] == 1


def test_77_a_burst_is_one_rise_and_one_fall() -> None:
    counts = Driven(replicas=2).run([15.0] * 300 + [150.0] * 30 + [15.0] * 2400)[200:]
    moves = [after > before for before, after in pairwise(counts) if after != before]
    turns = sum(after != before for before, after in pairwise(moves))
    assert max(counts) > 4
    assert turns == 1
    assert counts[-1] <= 3


@pytest.mark.parametrize("last", [0.0, 80.0])
def test_79_the_last_sample_does_not_decide_alone(last: float) -> None:
    # Of 2,000 users, each sends a request within a second with a probability of 2 %.
    drawn = np.random.Generator(np.random.PCG64(79)).binomial(2000, 0.02, 600)
    driven = Driven(replicas=5)
    before = driven.run(drawn.astype(float).tolist())[-1]
    assert driven.run([last])[-1] == before


def test_93_own_containers_can_have_the_limits_of_a_quota() -> None:
    spec = parse(
        "digits",
        {
            "model": {"source": PVC},
            "runtime": {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "4", "memory": "8Gi"}}},
        },
    )
    children = rendered.children(spec, site=replace(rendered.SITE, cpu_limit="2"))
    templates = rendered.pods(children)
    containers = [
        container for pod in templates for part in ("initContainers", "containers") for container in pod["spec"][part]
    ]

    assert {container["name"] for container in containers} == {"fetch", "triton", "agent", "haproxy"}
    assert [
        container["name"] for container in containers if not {"cpu", "memory"} <= set(container["resources"]["limits"])
    ] == []
    assert {container["resources"]["limits"]["cpu"] for container in containers if container["name"] != "triton"} == {
        "2"
    }


@pytest.mark.parametrize("name", ["ibm-granite/granite-3b", "qwen2.5:32b", "a b", "Modèle", "x" * 500])
def test_96_a_model_name_that_no_url_has_is_rejected(name: str) -> None:
    with pytest.raises(SpecError) as error:
        parse("digits", {"model": {"source": PVC, "name": name}})
    assert "spec.model.name" in str(error.value)


@pytest.mark.parametrize("name", ["ResNet50", "qwen2.5", "resnet_50", "0-Llama"])
def test_97_a_model_name_may_have_capitals_dots_and_underscores(name: str) -> None:
    container = triton({"model": {"source": PVC, "name": name}})
    assert container["readinessProbe"]["httpGet"]["path"] == f"/v2/models/{name}/ready"


def open_at(start: str, *times: str) -> list[bool]:
    """Return whether a window of an hour is open at these times in UTC."""
    schedules = [CronSchedule("office", start, 3600.0, low=3)]
    return [bool(in_force(schedules, datetime.fromisoformat(f"{at}+00:00").timestamp()).open) for at in times]


def test_99_a_window_of_weekdays_is_closed_on_the_weekend() -> None:
    # 2026-01-02 is a Friday.
    times = ("2026-01-02T08:30", "2026-01-02T09:30", "2026-01-03T08:30", "2026-01-04T08:30", "2026-01-05T08:30")
    assert open_at("0 8 * * 1-5", *times) == [True, False, False, False, True]


@pytest.mark.parametrize("weekdays", ["1-5", "MON-FRI", "mon-fri", "1,2,3,4,5", "1-3,4,FRI"])
def test_100_ranges_and_names_of_weekdays_are_the_same_days(weekdays: str) -> None:
    times = [f"2026-01-{day:02}T08:30" for day in range(2, 9)]
    assert open_at(f"0 8 * * {weekdays}", *times) == [True, False, False, True, True, True, True]


def test_108_labels_of_the_object_change_no_pod() -> None:
    plain = rendered.children(parse("digits", {"model": {"source": PVC}}))
    # The renderer gets the spec, the name and the uid, and nothing else of the object's metadata.
    assert {field.name for field in fields(rendered.SUBJECT)} == {"namespace", "name", "uid"}
    annotations = [obj["metadata"].get("annotations", {}) for obj in (*plain, *rendered.pods(plain))]
    assert not any("last-applied" in key for each in annotations for key in each)


def test_111_the_deployment_waits_as_long_as_a_model_may_load() -> None:
    assert deployment({"runtime": {"startupTimeout": "45m"}})["spec"]["progressDeadlineSeconds"] > 45 * 60


def test_113_a_single_pod_can_be_evicted() -> None:
    children = rendered.children(parse("digits", {"model": {"source": PVC}, "replicas": 1}))
    budgets = [child["spec"] for child in children if child["kind"] == "PodDisruptionBudget"]
    assert len(budgets) == 2
    assert all(budget["maxUnavailable"] == 1 and "minAvailable" not in budget for budget in budgets)


def test_114_all_pods_have_the_pull_secrets_of_the_spec() -> None:
    children = rendered.children(
        parse("digits", {"model": {"source": PVC}, "runtime": {"imagePullSecrets": [{"name": "registry"}]}})
    )
    pulls = [pod["spec"]["imagePullSecrets"] for pod in rendered.pods(children)]
    assert pulls == [[{"name": "registry"}]] * 2


def test_115_a_pod_without_an_open_stream_ends_within_seconds() -> None:
    command = triton({})["lifecycle"]["preStop"]["exec"]["command"][-1]
    sleep, _, rest = command.partition(";")
    assert int(sleep.removeprefix("sleep ")) <= 5
    assert "while" in rest
    assert "/proc/net/tcp" in rest


def test_130_requests_of_own_containers_are_those_that_the_limits_name() -> None:
    pods = rendered.pods(rendered.children(parse("digits", {"model": {"source": PVC}})))
    containers = [
        container for pod in pods for container in (*pod["spec"]["initContainers"], *pod["spec"]["containers"])
    ]
    own = [container["resources"] for container in containers if container["name"] != "triton"]
    assert {resources["requests"]["cpu"] for resources in own} == {"10m", "50m"}
    assert {resources["requests"]["memory"] for resources in own} == {"32Mi", "48Mi", "64Mi"}
    assert (
        max(quantity(resources["limits"]["memory"]) / quantity(resources["requests"]["memory"]) for resources in own)
        == 20
    )


def test_132_all_pods_of_a_model_run_on_linux_nodes() -> None:
    placement = {"placement": {"nodeSelector": {"pool": "gpus"}}}
    pods = rendered.pods(rendered.children(parse("digits", {"model": {"source": PVC}, "runtime": placement})))
    assert [pod["spec"]["nodeSelector"]["kubernetes.io/os"] for pod in pods] == ["linux"] * 2


@pytest.mark.parametrize("file", sorted((ROOT / "crds").glob("*.yaml")), ids=lambda file: file.stem)
def test_146_a_crd_has_no_field_that_the_api_server_drops(file: Path) -> None:
    crd = loaded(file.read_text())
    assert "status" not in crd
    assert crd["spec"].get("preserveUnknownFields") is None
    assert [] not in crd["spec"]["names"].values()
    for version in crd["spec"]["versions"]:
        assert all(value != [] for key, value in version.items() if key != "schema")


def test_136_a_warm_up_of_an_unknown_input_names_the_models_inputs() -> None:
    config = b'name: "m" max_batch_size: 8 input [ { name: "image" data_type: TYPE_UINT8 dims: [ -1, -1, 3 ] } ]'
    spec = parse(
        "m",
        {"model": {"source": PVC, "warmup": {"inputs": [{"name": "input", "dataType": "UINT8", "dims": [8, 8, 3]}]}}},
    )
    message = spec_check.problem(config, model_overlay.build("m", spec))
    assert "spec.model.warmup.inputs has input, which is not an input of the model; config.pbtxt has image" in message


def test_147_durations_and_quantities_are_stored_as_written() -> None:
    properties = loaded((ROOT / "crds/modeldeployments.serving.halcyon.dev.yaml").read_text())["spec"]["versions"][0][
        "schema"
    ]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    texts = {
        "traffic": ("drainTimeout", "queueTimeout", "responseTimeout", "maxRequestSize"),
        "runtime": ("startupTimeout", "sharedMemory"),
    }
    for part, names in texts.items():
        for name in names:
            field = properties[part]["properties"][name]
            # The API server converts neither a text nor a whole number of such a field.
            assert field.get("type", "int-or-string") in {"string", "int-or-string"}, name
            assert "format" not in field, name


@pytest.mark.parametrize("file", sorted((ROOT / "crds").glob("*.yaml")), ids=lambda file: file.stem)
def test_148_a_crd_fits_in_the_annotation_of_kubectl_apply(file: Path) -> None:
    assert len(json.dumps(loaded(file.read_text()))) < 0.75 * 262_144


def test_150_network_policies_allow_the_dns_ports_of_kubernetes_and_openshift() -> None:
    site = SiteNetwork(operator=({"podSelector": {}},))
    policies = (
        network_policies.balancers(rendered.SUBJECT, site, operator_port=10250),
        network_policies.servers(rendered.SUBJECT, site, balancers=True, clients=False, ports=[443]),
    )
    for policy in policies:
        ports = [
            (port["port"], port["protocol"])
            for rule in policy["spec"]["egress"]
            if "to" not in rule
            for port in rule["ports"]
        ]
        assert ports == [(53, "UDP"), (53, "TCP"), (5353, "UDP"), (5353, "TCP")]


@pytest.mark.parametrize("path", ["$$TRITON_MODEL_DIRECTORY/env.tar.gz", "$(HOME)/env", "a$$b$c"])
def test_158_a_parameter_with_dollar_signs_reaches_triton_unchanged(path: str) -> None:
    spec = parse("m", {"model": {"source": PVC, "parameters": {"EXECUTION_ENV_PATH": path}}})
    # The overlay is a file of a ConfigMap; in arguments and variables of a container, Kubernetes would replace $$ and $(HOME).
    assert path not in str(rendered.pods(rendered.children(spec)))
    content, _ = merged_config.of(b'backend: "python"', model_overlay.build("m", spec))
    assert config_pbtxt.parse(content).parameters["EXECUTION_ENV_PATH"].string_value == path


def test_159_other_folders_of_a_model_stay_and_cause_no_error(tmp_path: Path) -> None:
    for file in ("1/model.onnx", "model/notes.txt", "configs/h100.pbtxt", "warmup/raw", ".ipynb_checkpoints/x"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    folder = mounted_source.read(tmp_path)
    assert (folder.versions, folder.names, folder.left_out) == ((1,), ("1", "configs", "model", "warmup"), ())


def test_167_the_longest_request_is_that_of_the_spec() -> None:
    text = haproxy_cfg.render(replace(PLAN, response_timeout_ms=900_000), listen=Listen())
    assert "  timeout server 900000" in text
    assert '504 content-type application/json string \'{"error":"the server did not respond in time"}\'' in text


@pytest.mark.parametrize("size", ["2Gi", "1025Mi", "3e9"])
def test_168_a_size_that_triton_counts_as_negative_is_rejected(size: str) -> None:
    with pytest.raises(SpecError) as error:
        parse("digits", {"model": {"source": PVC}, "traffic": {"maxRequestSize": size}})
    assert "spec.traffic.maxRequestSize" in str(error.value)
    assert "1Gi" in str(error.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), -1.0])
def test_177_a_metric_that_is_no_amount_has_no_quantity(value: float) -> None:
    with pytest.raises(ValueError, match="must be a number from 0 up"):
        milli(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [(92.75, "92750m"), (0.0001, "1m"), (0.0, "0"), (120.0, "120"), (12000.0, "12k"), (1e19, "9223372036854775807m")],
)
def test_178_a_quantity_of_the_metrics_api_is_canonical(value: float, text: str) -> None:
    assert documents.quantity(milli(value)) == text
    assert 1000 * quantity(text) == milli(value)


def test_179_metrics_of_a_models_own_disturb_no_signal() -> None:
    page = """\
# HELP nv_inference_request_success Number of successful inference requests
nv_inference_request_success{model="m",version="1"} 3
nv_inference_qps{model="m",timestamp="1683447471",version="1"} 10001
requests{model="m",text="a } b, \\"c\\" \\\\ {"} 7 1683447471000
nv_inference_request_success{reason="x}",namespace="a=\\"b\\"",model="m",version="2"} 4
nv_inference_request_success{model="m2",version="1"} 90
latency_bucket{le="+Inf",model="m"} NaN
# EOF
"""
    metrics = parse_metrics(page, "m")
    assert (metrics.succeeded, metrics.failed, metrics.pending) == (7, None, None)


def test_198_a_signed_address_is_rejected_with_the_field_for_credentials() -> None:
    with pytest.raises(SpecError) as error:
        parse("m", {"model": {"source": {"uri": "https://models.example.com/m.tar.gz?X-Amz-Signature=1"}}})
    assert "spec.model.source.uri" in str(error.value)
    assert "query" in str(error.value)
    assert "credentials" in str(error.value)
