"""What holds for the children of any valid ModelDeployment."""

from __future__ import annotations

import copy
import functools
import ipaddress
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, get_args

import kubernetes_validate
import kubernetes_validate.utils as validating
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import StringConstraints

from halcyon.api.documents.balancer_plan import DRAIN_HEADER, PLAN_KEY, BalancerPlan
from halcyon.api.documents.model_overlay import Overlay
from halcyon.api.spec import Spec, routing_mode
from halcyon.api.spec.parse import SpecError, parse
from halcyon.api.spec.placement import Placement
from halcyon.api.types import Cidr, quantity
from halcyon.render import balancer, gpu, names, revision, server, server_start
from halcyon.render import hpa as render_hpa
from halcyon.render.metadata import Object
from halcyon.render.site import Subject
from tests.drawn import draws
from tests.strategies import NAMES, documents, specs
from tests.unit.render.pod_security import violations
from tests.unit.render.rendered import CONTENT, SITE, SUBJECT, children, content_of, find, pods

MINIMAL = parse("digits", {"model": {"source": {"persistentVolumeClaim": {"claimName": "models"}}}})
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
CIDR = next(mark.pattern for mark in get_args(Cidr) if isinstance(mark, StringConstraints))
FEW = draws(0.8)


def spec_of(**fields: Any) -> Spec:
    source = {"source": {"persistentVolumeClaim": {"claimName": "m"}}}
    runtime = {"gpu": {"count": 1}} | fields.get("runtime", {})
    return parse("digits", {**fields, "runtime": runtime, "model": source | fields.get("model", {})})


def names_and_labels_fit(_: Spec, __: Subject, objects: list[Object]) -> None:
    for obj in objects:
        meta = obj["metadata"]
        assert LABEL.fullmatch(meta["name"])
        # ConfigMaps become neither labels nor host names: theirs are subdomains, of 253 characters at most.
        assert len(meta["name"]) <= (253 if obj["kind"] == "ConfigMap" else 63)
        template = obj.get("spec", {}).get("template", {"metadata": {"labels": {}}})
        for value in [*meta["labels"].values(), *template["metadata"]["labels"].values()]:
            assert VALUE.fullmatch(value)
            assert len(value) <= 63


def no_two_share_a_kind_and_a_name(_: Spec, __: Subject, objects: list[Object]) -> None:
    keys = [(o["kind"], o["metadata"]["name"]) for o in objects]

    assert len(keys) == len(set(keys))


def every_child_is_found_by_its_labels_and_goes_with_its_owner(
    _: Spec, subject: Subject, objects: list[Object]
) -> None:
    for obj in objects:
        meta = obj["metadata"]
        assert meta["namespace"] == "team"
        assert meta["labels"]["serving.halcyon.dev/model-deployment"] == subject.name
        assert meta["labels"]["app.kubernetes.io/component"] in {"server", "balancer", "scaling", "route"}
        assert meta["labels"]["app.kubernetes.io/managed-by"] == "halcyon"
        (owner,) = meta["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("ModelDeployment", subject.name, subject.uid)
        assert owner["controller"]


def pods_keep_to_pod_security_restricted(_: Spec, __: Subject, objects: list[Object]) -> None:
    for template in pods(objects):
        assert violations(template) == []
        assert template["spec"]["automountServiceAccountToken"] is False
        for container in (*template["spec"]["initContainers"], *template["spec"]["containers"]):
            assert container["securityContext"]["readOnlyRootFilesystem"]


def what_happens_while_a_server_stops_fits_into_its_grace_period(
    spec: Spec, subject: Subject, objects: list[Object]
) -> None:
    pod = find(objects, "Deployment", f"{subject.name}-a")["spec"]["template"]["spec"]
    (triton,) = pod["containers"]
    (exit_timeout,) = (a.partition("=")[2] for a in triton["args"] if a.startswith("--exit-timeout-secs="))
    *_, script = triton["lifecycle"]["preStop"]["exec"]["command"]

    if spec.traffic.stickiness is None:
        assert f"sleep {server.PRE_STOP_S};" in script
        assert f"[ $n -lt {server.drain_s(spec)} ]" in script
    else:
        assert script == f"sleep {server.PRE_STOP_S + server.drain_s(spec)}"
    assert pod["terminationGracePeriodSeconds"] > server.PRE_STOP_S + server.drain_s(spec) + int(exit_timeout)
    assert int(exit_timeout) >= server.drain_s(spec)


def a_stopping_balancer_outlives_the_requests_in_it(spec: Spec, subject: Subject, _: list[Object]) -> None:
    pod = balancer.deployment(subject, spec, SITE)["spec"]["template"]["spec"]

    assert pod["terminationGracePeriodSeconds"] > balancer.PRE_STOP_S + server.drain_s(spec)


def selectors_pick_the_pods_they_are_meant_for_and_no_others(
    spec: Spec, subject: Subject, objects: list[Object]
) -> None:
    name = subject.name
    of_servers = find(objects, "Deployment", f"{name}-a")["spec"]["template"]["metadata"]["labels"]
    of_balancers = names.labels(name, names.BALANCER)
    picked = {
        **{(o["kind"], o["metadata"]["name"]): o["spec"]["selector"] for o in objects if o["kind"] == "Service"},
        **{
            (o["kind"], o["metadata"]["name"]): o["spec"]["selector"]["matchLabels"]
            for o in objects
            if o["kind"] in {"Deployment", "PodDisruptionBudget"}
        },
    }
    for_servers = {f"{name}-{end}" for end in ("a", "server-a", "headless", "route-a")}
    for (kind, child), selector in picked.items():
        servers = child in for_servers or ((kind, child) == ("Service", name) and routing_mode.is_direct(spec))
        assert (selector.items() <= of_servers.items()) is servers, (kind, child)
        assert (selector.items() <= of_balancers.items()) is not servers, (kind, child)


def volumes_that_are_mounted_exist_and_hold_only_what_the_revision_made(
    _: Spec, __: Subject, objects: list[Object]
) -> None:
    maps = {o["metadata"]["name"] for o in objects if o["kind"] == "ConfigMap"}
    for template in pods(objects):
        volumes = {v["name"]: v for v in template["spec"]["volumes"]}
        mounted = {
            m["name"]
            for c in (*template["spec"]["initContainers"], *template["spec"]["containers"])
            for m in c["volumeMounts"]
        }
        assert mounted == set(volumes)
        for volume in volumes.values():
            if "configMap" in volume:
                assert volume["configMap"]["name"] in maps


def the_documents_in_config_maps_are_read_back(spec: Spec, subject: Subject, objects: list[Object]) -> None:
    plan = BalancerPlan.from_json(find(objects, "ConfigMap", f"{subject.name}-balancer")["data"][PLAN_KEY])
    overlays = [o["data"]["overlay.json"] for o in objects if "overlay.json" in o.get("data", {})]

    assert plan.model == (spec.model.name or subject.name)
    assert plan.slots[0].capacity > spec.replicas
    assert [Overlay.from_json(text).model_name for text in overlays] == [plan.model]


def a_record_is_read_back_as_the_revision(spec: Spec, subject: Subject, _: list[Object]) -> None:
    rendered = revision.render(subject, spec, SITE, content_of(spec), number=7)

    assert revision.read(json.loads(json.dumps(revision.record(subject, rendered)))) == rendered


def every_child_keeps_to_the_schema_of_its_kind(_: Spec, __: Subject, objects: list[Object]) -> None:
    for obj in objects:
        if obj["apiVersion"].startswith("gateway."):
            continue  # Kubernetes has none of its own; an integration test has the real one
        kubernetes_validate.validate(obj, "1.35", strict=True)


RULES: tuple[Callable[[Spec, Subject, list[Object]], None], ...] = (
    names_and_labels_fit,
    no_two_share_a_kind_and_a_name,
    every_child_is_found_by_its_labels_and_goes_with_its_owner,
    pods_keep_to_pod_security_restricted,
    what_happens_while_a_server_stops_fits_into_its_grace_period,
    a_stopping_balancer_outlives_the_requests_in_it,
    selectors_pick_the_pods_they_are_meant_for_and_no_others,
    volumes_that_are_mounted_exist_and_hold_only_what_the_revision_made,
    the_documents_in_config_maps_are_read_back,
    a_record_is_read_back_as_the_revision,
    every_child_keeps_to_the_schema_of_its_kind,
)


@pytest.fixture(scope="module")
def _schemas() -> Iterator[None]:
    """Kubernetes' schemas, each read once: the library reads all their definitions again for each object."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validating, "schema_contents", functools.cache(validating.schema_contents))
        yield


@pytest.mark.usefixtures("_schemas")
@given(specs(), NAMES)
@example(MINIMAL, "a" * 52)
def test_the_children_of_any_model_keep_to_every_rule(spec: Spec, name: str) -> None:
    # All rules look at one rendering: drawing a spec takes longer than all of them.
    subject = replace(SUBJECT, name=name)
    objects = children(spec, subject)
    for rule in RULES:
        rule(spec, subject, objects)


@given(documents())
@FEW
def test_rendering_twice_gives_the_same_text(document: dict[str, Any]) -> None:
    first, second = parse("digits", document), parse("digits", copy.deepcopy(document))

    assert json.dumps(children(first)) == json.dumps(children(second))


def test_data_of_a_later_version_stays_in_a_record() -> None:
    # The API server rejects a change of the data, and the operator rewrites the annotations.
    spec = parse("digits", {"model": {"source": {"persistentVolumeClaim": {"claimName": "models"}}}})
    stored = revision.record(SUBJECT, revision.render(SUBJECT, spec, SITE, None, number=7))
    stored["data"] |= {"volumes": [{"later": True}]}
    restored = revision.read(stored)
    assert restored is not None
    assert revision.record(SUBJECT, replace(restored, note="{}"))["data"] == stored["data"]


def test_a_record_of_another_format_is_left_alone() -> None:
    assert revision.read({"data": {"format": 2}}) is None
    assert revision.read({}) is None


def key(document: dict[str, Any]) -> str:
    return revision.key(SUBJECT, parse("digits", document), None)


BASE = {
    "model": {"source": {"persistentVolumeClaim": {"claimName": "m"}}},
    "runtime": {"gpu": {"count": 1}},
    "scaling": {"maxReplicas": 4},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    document = copy.deepcopy(BASE)
    *parents, last = path.split(".")
    part: dict[str, Any] = document
    for parent in parents:
        part = part.setdefault(parent, {})
    part[last] = value
    return document


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("model.name", "other"),
        ("model.source.persistentVolumeClaim.path", "a"),
        ("model.revision", "2"),
        ("model.versions", {"latest": 2}),
        ("model.backend", "python"),
        ("model.parameters", {"a": "b"}),
        ("model.warmup", {}),
        ("runtime.image", "x"),
        ("runtime.imagePullSecrets", [{"name": "a"}]),
        ("runtime.gpu.count", 2),
        ("runtime.gpu.resourceName", "nvidia.com/mig-1g.10gb"),
        ("runtime.gpu.resourceClaimTemplateName", "one-gpu"),
        ("runtime.resources.requests.cpu", "1"),
        ("runtime.resources.limits.memory", "1Gi"),
        ("runtime.envFrom", [{"secretRef": {"name": "a"}}]),
        ("runtime.instancesPerGPU", 2),
        ("runtime.env", [{"name": "A", "value": "b"}]),
        ("runtime.sharedMemory", "1Gi"),
        ("runtime.placement.nodeSelector", {"a": "b"}),
        ("runtime.placement.tolerations", [{"key": "a"}]),
        ("runtime.placement.priorityClassName", "a"),
        ("runtime.placement.runtimeClassName", "a"),
        ("runtime.startupTimeout", "1m"),
        ("batching", {}),
        ("batching.maxBatchSize", 4),
        ("batching.maxQueueDelay", "1ms"),
        ("batching.preferredBatchSizes", [4]),
        ("batching.preserveOrdering", True),
        ("batching.priorityLevels", 2),
        ("batching.queuePolicy", {"maxQueueSize": 9}),
        ("runtime.server", {"logLevel": "Error"}),
        ("runtime.server.responseCache", {"size": "64Mi"}),
        ("traffic.drainTimeout", "31s"),
        ("traffic.mode", "Direct"),
        ("traffic.stickiness", {"header": "x-sequence-id"}),
    ],
)
def test_a_changed_ingredient_of_a_server_pod_is_a_new_revision(path: str, value: Any) -> None:
    assert key(changed(path, value)) != key(BASE)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("replicas", 7),
        ("scaling", None),
        ("scaling.maxReplicas", 9),
        ("scaling.targets.queueDepth", 9),
        ("scaling.behavior", {}),
        ("traffic.balancerReplicas", 1),
        ("traffic.queueLimit", 9),
        ("traffic.sourceShare", 40),
        ("traffic.queueTimeout", "9s"),
        ("traffic.responseTimeout", "9s"),
        ("traffic.maxRequestSize", "9Mi"),
        ("traffic.accessLog", "All"),
        ("traffic.tls", {"secretName": "a"}),
        ("traffic.service", {"type": "NodePort"}),
        ("runtime.gpu", {"count": 1}),
        ("runtime.startupTimeout", "10m"),
    ],
)
def test_a_change_of_anything_else_is_none(path: str, value: Any) -> None:
    assert key(changed(path, value)) == key(BASE)


def test_bodies_above_64_mib_are_allowed_in_a_new_revision() -> None:
    assert not any("input-size" in argument for argument in server_pod(traffic={"maxRequestSize": "64Mi"})[1]["args"])
    assert "--http-max-input-size=134217728" in server_pod(traffic={"maxRequestSize": "128Mi"})[1]["args"]
    assert key(changed("traffic.maxRequestSize", "64Mi")) == key(BASE) != key(changed("traffic.maxRequestSize", "65Mi"))
    assert key(changed("traffic.maxRequestSize", "1Gi")) == key(changed("traffic.maxRequestSize", "1024Mi"))


def test_a_later_version_finds_the_records_of_this_one() -> None:
    assert key(BASE) == "72abd995ed"
    assert key(changed("batching.maxBatchSize", 4)) == "944e497dc0"


def test_the_content_of_a_config_map_is_part_of_the_revision() -> None:
    spec = spec_of(model={"source": {"configMap": {"name": "m", "items": [{"key": "model", "path": "1/model.onnx"}]}}})
    other = revision.Content(data=CONTENT.data, binary={"model": "AAED"})
    first, second = (revision.render(SUBJECT, spec, SITE, content, number=1) for content in (CONTENT, other))

    assert first.key != second.key
    assert first.snapshot != second.snapshot


def test_a_changed_name_is_another_revision() -> None:
    assert revision.key(Subject("team", "a", "u"), MINIMAL, None) != revision.key(SUBJECT, MINIMAL, None)


def test_a_revision_does_not_depend_on_the_operator_s_version() -> None:
    newer = replace(SITE, operator_image="localhost/halcyon-operator:next")

    assert (
        revision.render(SUBJECT, MINIMAL, newer, None, number=1).key
        == revision.key(SUBJECT, MINIMAL, None)
        == revision.key(Subject("elsewhere", "digits", "another uid"), MINIMAL, None)
    )


def server_pod(**fields: Any) -> tuple[Object, Object]:
    pod = find(children(spec_of(**fields)), "Deployment", "digits-a")["spec"]["template"]["spec"]
    return pod, pod["containers"][0]


def test_gpus_are_a_limit_and_their_taint_is_tolerated() -> None:
    pod, triton = server_pod(runtime={"gpu": {"count": 2}})

    assert triton["resources"] == {"limits": {"nvidia.com/gpu": "2"}}
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]


@pytest.mark.parametrize(
    ("resource", "tolerated"),
    [
        ("nvidia.com/gpu", ["nvidia.com/gpu"]),
        ("nvidia.com/gpu.shared", ["nvidia.com/gpu", "nvidia.com/gpu.shared"]),
        ("nvidia.com/mig-1g.10gb", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb"]),
        ("amd.com/gpu", ["amd.com/gpu"]),
    ],
)
def test_a_named_resource_is_a_limit_and_its_taints_are_tolerated(resource: str, tolerated: list[str]) -> None:
    pod, triton = server_pod(runtime={"gpu": {"count": 2, "resourceName": resource}})

    assert triton["resources"] == {"limits": {resource: "2"}}
    assert pod["tolerations"] == [{"key": key, "operator": "Exists"} for key in tolerated]
    # Triton's gauge is 0 on a slice, whatever happens.
    assert ("--allow-gpu-metrics=false" in triton["args"]) is ("mig" in resource)


def test_claimed_gpus_are_counted_by_an_annotation() -> None:
    template = find(
        children(spec_of(runtime={"gpu": {"count": 2, "resourceClaimTemplateName": "two"}})), "Deployment", "digits-a"
    )["spec"]["template"]
    pod = template["spec"]

    assert pod["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": "two"}]
    assert pod["containers"][0]["resources"] == {"claims": [{"name": "gpu"}]}
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    assert template["metadata"]["annotations"]["serving.halcyon.dev/gpus"] == "2"
    assert gpu.count(template) == 2
    # Without the claim, the annotation is a word only.
    assert gpu.count({**template, "spec": {**pod, "resourceClaims": []}}) == 0


def test_no_local_volume_keeps_the_cluster_autoscaler_from_removing_a_node() -> None:
    key = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
    for spec in (MINIMAL, spec_of(model={"source": {"uri": "https://models.example.com/m.tgz"}})):
        template = find(children(spec), "Deployment", "digits-a")["spec"]["template"]
        local = {v["name"] for v in template["spec"]["volumes"] if "emptyDir" in v and "medium" not in v["emptyDir"]}

        assert set(template["metadata"]["annotations"][key].split(",")) == local
    chosen = spec_of(
        runtime={"podAnnotations": {key: "none", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}
    )
    assert find(children(chosen), "Deployment", "digits-a")["spec"]["template"]["metadata"]["annotations"] == {
        key: "none",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    }


def test_service_meshes_leave_the_agent_s_port_to_the_kubelet() -> None:
    template = find(children(MINIMAL), "Deployment", "digits-balancer")["spec"]["template"]
    agent, haproxy = template["spec"]["initContainers"][0], template["spec"]["containers"][0]
    port = str(agent["ports"][0]["containerPort"])

    assert template["metadata"]["annotations"] == {
        "config.linkerd.io/skip-inbound-ports": port,
        "traffic.sidecar.istio.io/excludeInboundPorts": port,
    }
    assert str(haproxy["lifecycle"]["preStop"]["httpGet"]["port"]) == port
    assert str(haproxy["readinessProbe"]["httpGet"]["port"]) == port


def test_the_kubelet_has_the_key_that_drains_a_balancer() -> None:
    template = find(children(MINIMAL), "Deployment", "digits-balancer")["spec"]["template"]
    agent, haproxy = template["spec"]["initContainers"][0], template["spec"]["containers"][0]
    [header] = haproxy["lifecycle"]["preStop"]["httpGet"]["httpHeaders"]

    assert header["name"] == DRAIN_HEADER
    assert f"--drain-key={header['value']}" in agent["args"]
    assert len(header["value"]) >= 10


def test_a_pod_without_gpu_requests_none() -> None:
    pod, triton = server_pod(runtime={"gpu": {"count": 0}})

    assert triton["resources"] == {}
    assert "tolerations" not in pod


def test_requests_and_limits_are_those_of_the_spec() -> None:
    _, triton = server_pod(
        runtime={"gpu": {"count": 0}, "resources": {"requests": {"cpu": "2"}, "limits": {"memory": "4Gi"}}}
    )

    assert triton["resources"] == {"requests": {"cpu": "2"}, "limits": {"memory": "4Gi"}}


def test_a_secret_s_key_reaches_the_environment_by_reference() -> None:
    entries = [{"name": "A", "value": ""}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]

    assert server_pod(runtime={"env": entries})[1]["env"][-2:] == [
        {"name": "A", "value": ""},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]


def test_home_is_a_size_limited_volume_that_triton_may_write_to() -> None:
    pod, triton = server_pod()
    (home,) = (entry["value"] for entry in triton["env"] if entry["name"] == "HOME")
    (mount,) = (mount for mount in triton["volumeMounts"] if mount["mountPath"] == home)
    (volume,) = (volume for volume in pod["volumes"] if volume["name"] == mount["name"])

    assert volume["emptyDir"] == {"sizeLimit": "20Gi"}
    assert not mount.get("readOnly")
    assert home.startswith("/halcyon/")


@pytest.mark.parametrize("home", [{"value": "/tmp"}, {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}])
def test_a_home_that_the_spec_names_is_the_only_one(home: dict[str, Any]) -> None:
    _, triton = server_pod(runtime={"env": [{"name": "A", "value": "a"}, {"name": "HOME", **home}]})

    assert [entry["name"] for entry in triton["env"]].count("HOME") == 1
    assert [entry["name"] for entry in triton["env"]][-2:] == ["A", "HOME"]


@pytest.mark.parametrize(("timeout", "seconds"), [("10m", 600), ("10s500ms", 11), ("24h", 86400)])
def test_the_start_up_probe_and_the_deadline_follow_the_startup_timeout(timeout: str, seconds: int) -> None:
    deployment = find(children(spec_of(runtime={"startupTimeout": timeout})), "Deployment", "digits-a")["spec"]
    probe = deployment["template"]["spec"]["containers"][0]["startupProbe"]

    assert probe["failureThreshold"] * probe["periodSeconds"] == seconds
    assert deployment["progressDeadlineSeconds"] > seconds


def test_no_command_has_two_dollar_signs() -> None:
    _, triton = server_pod()

    assert "$$" not in "".join([*triton["command"], *triton["args"]])


def test_a_container_with_a_closed_port_restarts_within_seconds() -> None:
    _, triton = server_pod()
    probe = triton["livenessProbe"]

    assert probe["periodSeconds"] * probe["failureThreshold"] + probe["terminationGracePeriodSeconds"] <= 5
    assert probe["timeoutSeconds"] * probe["failureThreshold"] >= 30, (
        "a Triton that is slow to respond is not killed soon"
    )


def test_the_probes_ask_for_the_model_itself() -> None:
    _, triton = server_pod(model={"name": "Digits.v2"})

    assert triton["readinessProbe"]["httpGet"]["path"] == "/v2/models/Digits.v2/ready"
    assert triton["livenessProbe"]["httpGet"]["path"] == "/v2/health/live"


def test_a_model_of_a_config_map_is_loaded_from_its_copy() -> None:
    spec = spec_of(model={"source": {"configMap": {"name": "m", "items": [{"key": "model", "path": "1/m.onnx"}]}}})
    objects = children(spec)
    (volume,) = (v for v in pods(objects)[0]["spec"]["volumes"] if v["name"] == "source")
    copied = find(objects, "ConfigMap", volume["configMap"]["name"])

    assert volume["configMap"]["name"] != "m"
    assert copied["immutable"]
    assert copied["binaryData"] == dict(CONTENT.binary)
    assert volume["configMap"]["items"] == [{"key": "model", "path": "1/m.onnx"}]
    assert volume["configMap"]["defaultMode"] == 0o755


def test_a_model_in_an_image_is_a_volume_of_that_image() -> None:
    image = {"reference": "registry.example.com/models/digits:3", "path": "team/digits"}
    pulled = [{"name": "registry"}]
    objects = children(spec_of(model={"source": {"image": image}}, runtime={"imagePullSecrets": pulled}))
    pod = pods(objects)[0]["spec"]
    (volume,) = (v for v in pod["volumes"] if v["name"] == "source")
    assert volume == {"name": "source", "image": {"reference": image["reference"]}}
    assert {"name": "registry"} in pod["imagePullSecrets"]
    assert "--path=team/digits" in pod["initContainers"][0]["args"]
    for container in (*pod["initContainers"], *pod["containers"]):
        assert next(m for m in container["volumeMounts"] if m["name"] == "source")["readOnly"] is True


def test_a_volume_is_mounted_read_only() -> None:
    pod, triton = server_pod()
    (volume,) = (v for v in pod["volumes"] if v["name"] == "source")

    assert volume["persistentVolumeClaim"] == {"claimName": "m", "readOnly": True}
    assert all(m["readOnly"] for m in triton["volumeMounts"] if m["name"] == "source")


def test_the_autoscaler_has_both_targets_as_average_values() -> None:
    scaling = {"maxReplicas": 8, "policy": "Rules"}
    hpa = render_hpa.hpa(SUBJECT, spec_of(scaling=scaling, batching={"maxBatchSize": 16}), tolerance=True)["spec"]

    assert hpa["scaleTargetRef"] == {
        "apiVersion": "serving.halcyon.dev/v1alpha1",
        "kind": "ModelDeployment",
        "name": "digits",
    }
    assert [(m["external"]["metric"]["name"], m["external"]["target"]) for m in hpa["metrics"]] == [
        ("queueDepth", {"type": "AverageValue", "averageValue": "16"}),
        ("gpuUtilization", {"type": "AverageValue", "averageValue": "80"}),
    ]
    assert (hpa["minReplicas"], hpa["maxReplicas"]) == (1, 8)
    assert "behavior" not in hpa


def test_the_gpu_target_is_absent_without_a_gpu() -> None:
    hpa = render_hpa.hpa(
        SUBJECT, spec_of(scaling={"maxReplicas": 8, "policy": "Rules"}, runtime={"gpu": {"count": 0}}), tolerance=True
    )["spec"]

    assert [m["external"]["metric"]["name"] for m in hpa["metrics"]] == ["queueDepth"]


def test_a_tolerance_is_set_only_if_the_api_server_supports_it() -> None:
    planned = spec_of(scaling={"maxReplicas": 8})
    exact, coarse = (render_hpa.hpa(SUBJECT, planned, tolerance=known)["spec"]["behavior"] for known in (True, False))

    for way in ("scaleUp", "scaleDown"):
        assert exact[way] == coarse[way] | {"tolerance": "0"}


def test_the_planners_hpa_follows_its_replicas_without_a_pace_of_its_own() -> None:
    hpa = render_hpa.hpa(
        SUBJECT, spec_of(scaling={"minReplicas": 0, "maxReplicas": 8, "targets": {"queueDepth": 3}}), tolerance=True
    )["spec"]

    (metric,) = hpa["metrics"]
    assert metric["external"]["metric"]["name"] == "desiredReplicas"
    assert metric["external"]["target"] == {"type": "AverageValue", "averageValue": "1"}
    assert (hpa["minReplicas"], hpa["maxReplicas"]) == (1, 8)
    for way in ("scaleUp", "scaleDown"):
        rules = hpa["behavior"][way]
        assert (rules["stabilizationWindowSeconds"], rules["tolerance"], rules["selectPolicy"]) == (0, "0", "Max")
        assert rules["policies"] == [{"type": "Pods", "value": 1000, "periodSeconds": 1}]


@pytest.mark.parametrize("mode", ["Recommend", "Paused"])
def test_an_hpa_by_rules_stands_still_if_the_mode_requires_it(mode: str) -> None:
    hpa = render_hpa.hpa(SUBJECT, spec_of(scaling={"maxReplicas": 8, "policy": "Rules", "mode": mode}), tolerance=True)[
        "spec"
    ]

    assert {way: rules["selectPolicy"] for way, rules in hpa["behavior"].items()} == {
        "scaleUp": "Disabled", "scaleDown": "Disabled",
    }  # fmt: skip


def test_an_hpa_lets_a_schedule_go_below_the_minimum() -> None:
    night = {"name": "night", "start": "0 22 * * *", "duration": "8h", "maxReplicas": 2}
    scaling = {"minReplicas": 4, "maxReplicas": 8, "schedules": [night]}

    assert render_hpa.hpa(SUBJECT, spec_of(scaling=scaling), tolerance=True)["spec"]["minReplicas"] == 2


def test_an_hpa_is_not_rendered_without_scaling() -> None:
    with pytest.raises(ValueError, match="without scaling"):
        render_hpa.hpa(SUBJECT, MINIMAL, tolerance=True)


@given(st.integers(0, 1000))
def test_server_lines_are_reserved_for_every_pod_and_as_many_that_drain(most: int) -> None:
    spec = spec_of(replicas=most)
    (slot,) = balancer.plan(SUBJECT, spec, SITE, (names.SLOT_A,)).slots

    assert 2 * max(most, 1) + 1 < slot.capacity <= 4 * max(most, 1) + 8
    assert slot.capacity.bit_count() == 1


def test_request_timeouts_are_at_least_a_millisecond_and_drain_whole_seconds() -> None:
    plan = balancer.plan(
        SUBJECT,
        spec_of(traffic={"queueTimeout": "10ms500us", "responseTimeout": "10ms500us", "drainTimeout": "1s1us"}),
        SITE,
        (names.SLOT_A,),
    )

    assert (plan.queue_timeout_ms, plan.drain_ms) == (10, 2000)


@given(st.integers(1, 3600))
def test_a_channel_is_closed_gracefully_before_a_stopping_server_ends(drain_s: int) -> None:
    age_s = server_start.connection_age_ms(drain_s) / 1000

    # One that is made when the pod's end begins, and lasts for the tenth more that gRPC may add.
    assert 1.1 * age_s < drain_s
    assert age_s <= 60


@pytest.mark.parametrize("mode", ["Balancer", "Direct"])
def test_exploitable_features_are_closed_at_each_server(mode: str) -> None:
    _, triton = server_pod(traffic={"mode": mode})

    (http,) = (a for a in triton["args"] if a.startswith("--http-restricted-api="))
    (grpc,) = (a for a in triton["args"] if a.startswith("--grpc-restricted-protocol="))
    for argument in (http, grpc):
        apis, _, key = argument.partition("=")[2].partition(":")
        assert set(apis.split(",")) == {"shared-memory", "trace", "logging"}
        assert len(key.partition("=")[2]) >= 10


def test_channels_have_an_age_and_may_ping_only_where_clients_hold_them() -> None:
    held = {
        "--grpc-max-connection-age=20000",
        "--grpc-http2-min-recv-ping-interval-without-data=5000",
        "--grpc-keepalive-permit-without-calls=1",
    }
    gateway = {"mode": "Gateway", "gateway": {"name": "edge", "http": {}}}
    for traffic in ({"mode": "Direct"}, gateway):
        assert held <= set(server_pod(traffic=traffic)[1]["args"])
    assert not any("age" in a.partition("=")[0] or "ping" in a for a in server_pod()[1]["args"])


def test_a_stopping_sticky_server_waits_for_all_of_the_drain() -> None:
    _, triton = server_pod(traffic={"stickiness": {"header": "X-Sequence-ID"}, "drainTimeout": "20s"})

    assert triton["lifecycle"]["preStop"]["exec"]["command"][-1] == "sleep 25"


def test_shared_memory_is_a_volume_of_its_size() -> None:
    pod, triton = server_pod(runtime={"sharedMemory": "2Gi"})
    (volume,) = (v for v in pod["volumes"] if v["name"] == "shm")

    assert volume["emptyDir"]["medium"] == "Memory"
    assert quantity(volume["emptyDir"]["sizeLimit"]) == 2 * 2**30
    assert {"name": "shm", "mountPath": "/dev/shm"} in triton["volumeMounts"]


@pytest.mark.parametrize(
    ("own", "of_the_site", "used"),
    [
        ([], (), None),
        (["a"], (), ["a"]),
        ([], ("s",), ["s"]),
        (["b", "a"], ("s", "a"), ["b", "a", "s"]),
    ],
)
def test_balancers_and_servers_pull_with_secrets_of_model_and_site(
    own: list[str], of_the_site: tuple[str, ...], used: list[str] | None
) -> None:
    runtime = {"imagePullSecrets": [{"name": name} for name in own]} if own else {}
    objects = children(spec_of(runtime=runtime), site=replace(SITE, pull_secrets=of_the_site))

    assert len(pods(objects)) == 2
    for template in pods(objects):
        secrets = template["spec"].get("imagePullSecrets")
        assert secrets == (None if used is None else [{"name": name} for name in used])


def test_balancers_follow_the_sites_placement_and_servers_the_models() -> None:
    of_the_site = {
        "nodeSelector": {"pool": "edge"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "priorityClassName": "front",
    }
    runtime = {"placement": {"nodeSelector": {"pool": "gpus"}}, "gpu": {"count": 0}}
    site = replace(SITE, balancers=Placement.model_validate(of_the_site))
    pod_specs = [template["spec"] for template in pods(children(spec_of(runtime=runtime), site=site))]
    (front,) = (pod for pod in pod_specs if pod["containers"][0]["name"] == "haproxy")
    (server,) = (pod for pod in pod_specs if pod["containers"][0]["name"] == "triton")

    of_the_site["nodeSelector"] = {"pool": "edge", "kubernetes.io/os": "linux"}
    assert {key: front[key] for key in of_the_site} == of_the_site
    assert server["nodeSelector"] == {"pool": "gpus", "kubernetes.io/os": "linux"}
    assert not {"tolerations", "priorityClassName"} & server.keys()


def test_source_ranges_are_written_as_networks_and_each_once() -> None:
    ranges = ["10.1.2.3/8", "10.0.0.0/8", "fd00:0:0::1/64"]
    service = balancer.service(SUBJECT, spec_of(traffic={"service": {"type": "LoadBalancer", "sourceRanges": ranges}}))

    assert service["spec"]["loadBalancerSourceRanges"] == ["10.0.0.0/8", "fd00::/64"]


@pytest.mark.parametrize(
    "text", ["10.0.0.0", "10.0.0/8", "256.0.0.0/8", "10.0.0.0/33", "::1", "fd00::1::/8", "::/129", "1:/8", "x/8"]
)
def test_a_malformed_address_range_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"must be a range of IP addresses, for example 10\.0\.0\.0/8 or fd00::/8"):
        spec_of(traffic={"service": {"type": "LoadBalancer", "sourceRanges": [text]}})


@given(st.from_regex(CIDR, fullmatch=True))
@FEW
def test_an_accepted_address_range_is_valid_for_every_consumer(text: str) -> None:
    assert ipaddress.ip_network(text, strict=False).prefixlen == int(text.partition("/")[2])


def test_a_balancer_starts_without_its_secrets_and_names_them() -> None:
    spec = spec_of(traffic={"tls": {"secretName": "a", "clientCA": "b"}, "apiKeys": {"secretName": "c"}})
    pod = balancer.deployment(SUBJECT, spec, SITE)["spec"]["template"]["spec"]
    (agent,) = pod["initContainers"]
    secrets = {v["name"]: v["secret"] for v in pod["volumes"] if "secret" in v}

    assert {"--certificate-secret=a", "--clients-secret=b", "--keys-secret=c"} <= set(agent["args"])
    assert {name: (s["secretName"], s["optional"]) for name, s in secrets.items()} == {
        "certificate": ("a", True),
        "clients": ("b", True),
        "keys": ("c", True),
    }
    # HAProxy sees what the agent has looked at, and nothing else.
    assert not {m["name"] for m in pod["containers"][0]["volumeMounts"]} & set(secrets)
    ports = {p["name"]: p.get("appProtocol") for p in balancer.service(SUBJECT, spec)["spec"]["ports"]}
    assert ports == {"http": "https", "grpc": "https"}
    plain = balancer.service(SUBJECT, spec_of())
    ports = {p["name"]: p.get("appProtocol") for p in plain["spec"]["ports"]}
    assert ports == {"http": "http", "grpc": "kubernetes.io/h2c"}
    # A pod is what it was made as, whatever a plan says.
    assert not re.search("tls|keys|secret", balancer.plan(SUBJECT, spec, SITE, (names.SLOT_A,)).to_json())


@pytest.mark.parametrize(
    "scaling", [{}, {"policy": "Rules"}, {"policy": "Rules", "behavior": {"scaleUp": {"selectPolicy": "Max"}}}]
)
def test_no_hpa_lowers_replicas_while_the_site_holds_them(scaling: dict[str, Any]) -> None:
    spec = spec_of(scaling={"maxReplicas": 8, **scaling})
    free, held = (render_hpa.hpa(SUBJECT, spec, tolerance=True, hold=hold)["spec"] for hold in (False, True))

    assert held["behavior"]["scaleDown"] == {"selectPolicy": "Disabled"}
    assert held["behavior"].get("scaleUp") == free.get("behavior", {}).get("scaleUp")
    assert {**held, "behavior": None} == {**free, "behavior": None}
