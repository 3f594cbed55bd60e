"""The CRD on a real API server: it is accepted, does what it says, and agrees with our own models on what is valid."""

from __future__ import annotations

import copy
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

from e2e.cluster.cluster import Cluster
from e2e.cluster.kubectl import Kubectl, KubectlError
from e2e.cluster.processes import wait_until
from generators import crd
from halcyon.api.schema import structural_schema
from halcyon.api.spec import Spec
from halcyon.api.spec.parse import SpecError, parse
from halcyon.api.types import quantity
from halcyon.control.desired.plan import make
from halcyon.control.state.scope import PublishedScaling, Signals
from halcyon.control.status import status
from halcyon.kube import kinds
from halcyon.kube.apply_diff import holds, with_digest
from halcyon.kube.kinds import Kind, kind_of
from halcyon.render import balancer
from halcyon.render.site import Subject
from halcyon.scaling.planner.outputs import PlanPart
from halcyon.scaling.policy.decision import Change, Decision, Signal
from tests.integration import gateway_api
from tests.integration.connection import LIMIT_S, STRICT, Connection
from tests.integration.versions import declares_tolerance, has_image_volumes, has_resource_claims
from tests.integration.waiting import until
from tests.strategies import Document, broken, documents, specs
from tests.unit.api.spec_cases import CONCURRENCY, FIELDS, GOOD, RULES, document
from tests.unit.control.scope_builders import resource, scope_of
from tests.unit.control.status import kstatus
from tests.unit.render.rendered import WALLED, children, pods

PATH = kinds.MODEL_DEPLOYMENT.path("default")
CRD = Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False)
NO_SHRINKING = settings(
    deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck), print_blob=True
)
"""An example costs a request; the counterexample itself is small enough to read."""


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Iterator[Connection]:
    """A connection to an API server that has the CRD."""
    with closing(Connection(cluster)) as connection:
        answer = connection.apply(CRD, crd.build(), fieldValidation="Strict")
        assert answer.status in {200, 201}, answer.message
        wait_until(
            lambda: connection.try_spec(document()).status == 201,
            goal="the API server serves ModelDeployments",
            limit_s=LIMIT_S,
            every_s=0.02,
        )
        yield connection


def test_the_definition_is_established_and_structural(api: Connection) -> None:
    answer = api.send("GET", CRD.path(name=crd.build()["metadata"]["name"]))
    conditions = {c["type"]: c["status"] for c in answer.body["status"]["conditions"]}

    assert conditions["Established"] == conditions["NamesAccepted"] == "True"
    assert "NonStructuralSchema" not in conditions


def explained(kubectl: Kubectl) -> str:
    try:
        return kubectl("explain", "mdep.spec.scaling.targets.queueDepth")
    except KubectlError:
        return ""


@pytest.mark.usefixtures("api")
def test_a_field_is_explained(kubectl: Kubectl) -> None:
    # The aggregator reads what is served once a second.
    text = until(lambda: explained(kubectl), bool, goal="kubectl knows the field")

    assert "Target number of queued requests per replica" in text
    assert "<integer>" in text


@pytest.mark.usefixtures("api")
def test_printer_columns_show_the_state_at_a_glance(kubectl: Kubectl) -> None:
    kubectl.apply(_without_namespace(resource()))

    head = ["NAME", "STATUS", "READY", "DESIRED", "RANGE", "AGE"]
    assert kubectl("get", "mdep").splitlines()[0].split() == head
    more = ["QUEUE", "GPU%", "BATCH", "URL", "IMAGE", "POLICY", "ACTUATOR", "SCALED", "CAPACITY"]
    assert kubectl("get", "mdep", "-o", "wide").splitlines()[0].split() == [*head, *more]


def test_defaults_appear(api: Connection) -> None:
    spec = api.try_spec(document("scaling", {"maxReplicas": 3})).body["spec"]

    assert spec["replicas"] == 1
    assert "gpu" not in spec["runtime"]
    assert spec["runtime"]["sharedMemory"] == "256Mi"
    assert spec["traffic"] == {
        "mode": "Balancer",
        "balancerReplicas": 2,
        "sourceShare": 100,
        "responseTimeout": "1m",
        "drainTimeout": "30s",
        "maxRequestSize": "64Mi",
        "accessLog": "None",
        "service": {"type": "ClusterIP"},
    }
    assert spec["scaling"] == {"minReplicas": 1, "maxReplicas": 3, "mode": "Active", "targets": {}}
    assert "batching" not in spec


@pytest.mark.usefixtures("api")
def test_an_object_that_no_operator_has_seen_is_not_taken_for_done(kubectl: Kubectl) -> None:
    kubectl.apply(_without_namespace(resource()))
    stored = json.loads(kubectl("get", "mdep", "digits", "-o", "json"))

    assert stored["status"] == {"observedGeneration": 0}
    assert kstatus.compute(stored) == "InProgress"
    assert kstatus.compute({**stored, "status": {}}) == "Current", "so it would be without"


def test_defaults_appear_beside_what_is_set(api: Connection) -> None:
    spec = api.try_spec(document("runtime", {"startupTimeout": "1m"})).body["spec"]

    assert spec["runtime"] == {
        "resources": {}, "sharedMemory": "256Mi", "placement": {}, "startupTimeout": "1m",
    }  # fmt: skip


PAUSES: dict[str, dict[str, Any]] = {
    "none": {},
    "of a duration": {"pause": {"duration": "10m"}},
    "without a duration": {"pause": {}},
}


@pytest.mark.parametrize("arguments", [("--server-side",), ()], ids=["server-side", "client-side"])
@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(PAUSES, 2)))
@pytest.mark.usefixtures("api")
def test_an_applied_pause_is_the_one_of_a_model_created_with_it(
    before: str, after: str, arguments: tuple[str, ...], kubectl: Kubectl
) -> None:
    def model(name: str, pause: str) -> dict[str, Any]:
        canary = {"steps": [{"weight": 10, **PAUSES[pause]}, {"weight": 50}]}
        return {**resource(), "metadata": {"name": name}, "spec": document("rollout", {"canary": canary})}

    def steps(name: str) -> Any:
        return kubectl.get("mdep", name)["spec"]["rollout"]["canary"]["steps"]

    kubectl.apply(_without_namespace(model("changed", before)), arguments=arguments)
    kubectl.apply(_without_namespace(model("changed", after)), arguments=arguments)
    kubectl.apply(_without_namespace(model("created", after)), arguments=arguments)

    assert steps("changed") == steps("created")
    assert steps("created")[0].get("pause") == PAUSES[after].get("pause")


SELECTING = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "cache"}}}]
EMPTIED: dict[str, tuple[Document, Document]] = {
    "gpu": (document("runtime.gpu", {"count": 2}), document("runtime.gpu", {})),
    "batching": (document("batching", {"maxBatchSize": 8}), document("batching", {})),
    "warmup": (document("model.warmup", {"iterations": 3, "data": "Random"}), document("model.warmup", {})),
    "selector": (
        document("runtime.placement.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution", SELECTING),
        document(
            "runtime.placement.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution",
            [SELECTING[0] | {"labelSelector": {}}],
        ),
    ),
}
"""Specs before and after their last field of an object is taken away, for objects that mean something if they are empty."""


@pytest.mark.parametrize("arguments", [("--server-side",), ()], ids=["server-side", "client-side"])
@pytest.mark.parametrize("name", EMPTIED)
@pytest.mark.usefixtures("api")
def test_an_object_that_an_apply_empties_is_not_removed(
    name: str, arguments: tuple[str, ...], kubectl: Kubectl
) -> None:
    before, after = ({**resource(), "spec": spec} for spec in EMPTIED[name])
    kubectl.apply(_without_namespace(before), arguments=arguments)
    kubectl.apply(_without_namespace(after), arguments=arguments)
    created = _without_namespace(after) | {"metadata": {"name": "created"}}
    kubectl.apply(created, arguments=arguments)

    assert kubectl.get("mdep", "digits")["spec"] == kubectl.get("mdep", "created")["spec"]


def test_a_gpu_that_is_asked_for_is_a_whole_one(api: Connection) -> None:
    spec = api.try_spec(document("runtime", {"gpu": {}})).body["spec"]

    assert spec["runtime"]["gpu"] == {"count": 1}


def test_replicas_are_scaled_and_the_selector_is_found(api: Connection, kubectl: Kubectl, namespace: str) -> None:
    kubectl.apply(_without_namespace(resource()))
    kubectl("scale", "mdep/digits", "--replicas=3")
    stored = kubectl.get("mdep", "digits")
    assert (stored["spec"]["replicas"], stored["metadata"]["generation"]) == (3, 2)

    now = scope_of()
    written = status.make(now, make(now), now="2026-01-02T03:04:05Z")
    applied = resource() | {"metadata": {"name": "digits", "namespace": namespace}, "status": written}
    del applied["spec"]
    assert api.apply(kinds.MODEL_DEPLOYMENT, applied, subresource="status").status == 200
    scale = api.send("GET", kinds.MODEL_DEPLOYMENT.path(namespace, "digits", "scale")).body
    assert scale["spec"] == {"replicas": 3}
    assert scale["status"] == {
        "replicas": 0,
        "selector": "serving.halcyon.dev/model-deployment=digits,app.kubernetes.io/component=server",
    }


def test_the_whole_status_is_kept(api: Connection, kubectl: Kubectl, namespace: str) -> None:
    kubectl.apply(_without_namespace(resource()))
    observed = Signals(
        load_errors={"p": "x" * 5000},
        versions=("1", "2"),
        mean_batch=3.5,
    )
    signals = (Signal("queueDepth", 12.0, 8, 2, 1767323045.0), Signal("gpuUtilization", target=80, missing="y" * 5000))
    parts = (PlanPart("rate", 2, "30 req/s needs 2"), PlanPart("backlog", 1, "z" * 5000))
    verdict = Decision(1767323045.0, "Planner", 1, 2, "w" * 5000, ("hold", "max"), parts, signals)
    changes = tuple(Change(1767323045.0 - n, n, n + 1, "v" * 5000) for n in range(10))
    now = scope_of({"scaling": {"maxReplicas": 4}}, signals=observed, scaling=PublishedScaling(verdict, changes))
    written = status.make(now, make(now), now="2026-01-02T03:04:05Z")
    applied = resource() | {"metadata": {"name": "digits", "namespace": namespace}, "status": written}
    del applied["spec"]
    answer = api.apply(kinds.MODEL_DEPLOYMENT, applied, subresource="status", fieldValidation="Strict")

    assert answer.status == 200, answer.message
    assert answer.body["status"] == written


def test_a_manager_of_one_list_entry_leaves_the_others(api: Connection, kubectl: Kubectl, namespace: str) -> None:
    base = resource() | {"metadata": {"name": "digits", "namespace": namespace}}
    del base["status"]
    for manager, name in (("one", "A"), ("two", "B")):
        body = copy.deepcopy(base)
        body["spec"]["runtime"] = {"env": [{"name": name, "value": manager}]}
        assert api.apply(kinds.MODEL_DEPLOYMENT, body, fieldManager=manager).status < 300

    stored = kubectl.get("mdep", "digits")
    assert stored["spec"]["runtime"]["env"] == [{"name": "A", "value": "one"}, {"name": "B", "value": "two"}]


@pytest.mark.parametrize(("path", "value"), GOOD)
def test_values_that_the_reference_allows_are_accepted(api: Connection, path: str, value: Any) -> None:
    answer = api.try_spec(document(path, value))

    assert answer.status == 201, answer.message


@pytest.mark.parametrize(("path", "value", "sentence"), RULES)
def test_a_rule_over_several_fields_gives_our_sentence(api: Connection, path: str, value: Any, sentence: str) -> None:
    answer = api.try_spec(document(path, value))

    assert answer.status == 422
    assert sentence in answer.message


@pytest.mark.parametrize(("spec", "sentence"), CONCURRENCY)
def test_requests_in_a_pod_fit_its_batches_and_its_queue(
    api: Connection, spec: dict[str, Any], sentence: str | None
) -> None:
    answer = api.try_spec(document() | spec)

    assert answer.status == (201 if sentence is None else 422), answer.message
    assert (sentence or "") in answer.message


def test_a_gpu_target_without_a_gpu_gives_the_same_sentence_as_ours(api: Connection) -> None:
    spec = document("scaling", {"maxReplicas": 2, "targets": {"gpuUtilization": 80}}) | {
        "runtime": {"gpu": {"count": 0}}
    }
    with pytest.raises(SpecError) as error:
        parse("digits", spec)

    assert str(error.value) in api.try_spec(spec).message


@pytest.mark.parametrize(("path", "value", "sentence"), FIELDS)
def test_a_bound_of_a_field_is_refused_by_the_field_s_name(
    api: Connection, path: str, value: Any, sentence: str
) -> None:
    answer = api.try_spec(document(path, value))

    assert answer.status in {400, 422}
    assert sentence.split(maxsplit=1)[0].split("[", maxsplit=1)[0].removesuffix(".a/b") in answer.message


def test_a_key_of_a_map_that_is_none_is_named(api: Connection) -> None:
    message = api.try_spec(document("model.parameters", {"good": "x", "a/b": "y"})).message

    assert "spec.model.parameters" in message
    assert 'every key must match ^[-._a-zA-Z0-9]+$ and have at most 253 characters; invalid keys: ["a/b"]' in message


@pytest.mark.parametrize("name", ["1a", "a.b", "a" * 53])
def test_a_name_that_does_not_fit_gives_our_sentence(api: Connection, name: str) -> None:
    with pytest.raises(SpecError) as error:
        parse(name, document())

    assert str(error.value) in api.try_spec(document(), name=name).message


def test_the_longest_name_fits(api: Connection) -> None:
    assert api.try_spec(document(), name="a" * 52).status == 201


def test_an_unknown_field_is_refused_under_strict_validation_and_else_dropped(api: Connection) -> None:
    spec = document("batching", {"maxBatchSzie": 8})
    assert 'unknown field "spec.batching.maxBatchSzie"' in api.try_spec(spec).message

    lenient = api.try_spec(spec, fieldValidation="Warn")
    assert lenient.status == 201
    assert lenient.body["spec"]["batching"] == {}
    parse("digits", lenient.body["spec"])


def test_nulls_and_whole_fractions_are_stored_as_our_models_read_them(api: Connection) -> None:
    spec = document("batching.maxBatchSize", 8.0) | {
        "runtime": None,
        "scaling": None,
        "traffic": {"drainTimeout": None},
    }
    stored = api.try_spec(spec).body["spec"]

    assert parse("digits", stored) == parse("digits", document("batching.maxBatchSize", 8))


@pytest.mark.parametrize("amount", [2, "2", "2e0"])
def test_a_quantity_is_a_text_or_a_whole_number(api: Connection, amount: Any) -> None:
    answer = api.try_spec(document("runtime.resources", {"limits": {"cpu": amount}}))

    assert answer.status == 201, answer.message
    limits = parse("digits", answer.body["spec"]).runtime.resources.limits
    assert limits is not None
    assert quantity(str(limits.cpu)) == 2


@pytest.mark.parametrize("amount", [0.5, 2.0, -1, True])
def test_a_quantity_of_another_form_is_refused_by_both(api: Connection, amount: Any) -> None:
    spec = document("runtime.resources", {"limits": {"cpu": amount}})

    assert api.try_spec(spec).status == 422
    with pytest.raises(SpecError):
        parse("digits", spec)


def test_the_api_server_and_our_models_agree_on_what_is_valid(api: Connection) -> None:
    seen: Counter[str] = Counter()

    @given(documents() | broken(structural_schema.schema(Spec)) | broken(structural_schema.schema(Spec)))
    @settings(NO_SHRINKING, max_examples=400)
    def agree(spec: Document) -> None:
        answer = api.try_spec(spec)
        parsed, refusal = _ours(spec)
        verdict = "accepted" if parsed else "refused"
        assert answer.status in ({201} if parsed else {400, 422}), (
            f"{verdict} by us alone: {json.dumps(spec)}: {refusal} {answer.message}"
        )
        assert parsed is None or parse("digits", answer.body["spec"]) == parsed
        seen[verdict] += 1

    agree()
    assert min(seen["refused"], seen["accepted"]) > 80, seen


def test_children_rendered_from_any_spec_are_accepted_by_the_api_server(
    api: Connection, cluster: Cluster, namespace: str
) -> None:
    gateway_api.install(cluster)
    tolerance, images = declares_tolerance(cluster), has_image_volumes(cluster)
    subject = Subject(namespace, "digits", "0c8a9a4e-0000-4000-8000-000000000001")
    restricted = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    labelled = api.send("PATCH", f"/api/v1/namespaces/{namespace}", restricted, content="application/merge-patch+json")
    assert labelled.status == 200
    account = balancer.service_account(subject)
    del account["metadata"]["ownerReferences"]  # there is no such owner: the garbage collector would remove it
    assert api.apply(kinds.SERVICE_ACCOUNT, account).status == 201

    @given(specs())
    @settings(NO_SHRINKING, max_examples=40)
    def accepted(spec: Spec) -> None:
        assume(images or spec.model.source.image is None)
        objects = children(spec, subject, WALLED, tolerance=tolerance)
        for obj in objects:
            answer = api.apply(kind_of(obj), obj, **STRICT)
            assert answer.status in {200, 201}, f"{obj['kind']}: {answer.message}"
        for number, template in enumerate(pods(objects)):
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"p{number}", "namespace": namespace, **template["metadata"]},
                # Classes that don't exist are refused; that they are named right is the Deployment's business.
                "spec": {k: v for k, v in template["spec"].items() if not k.endswith("ClassName")},
            }
            answer = api.apply(kinds.POD, pod, **STRICT)
            assert answer.status in {200, 201}, answer.message

    accepted()


def test_an_object_applied_twice_is_unchanged_the_second_time(
    api: Connection, cluster: Cluster, namespace: str
) -> None:
    gateway_api.install(cluster)
    tolerance, images = declares_tolerance(cluster), has_image_volumes(cluster)
    claims = has_resource_claims(cluster)  # an older API server drops them, so the operator rejects the spec
    subject = Subject(namespace, "digits", "0c8a9a4e-0000-4000-8000-000000000001")

    @given(specs())
    @settings(NO_SHRINKING, max_examples=15)
    def settled(spec: Spec) -> None:
        assume(images or spec.model.source.image is None)
        assume(claims or spec.runtime.gpu is None or spec.runtime.gpu.resource_claim_template_name is None)
        for obj in map(with_digest, children(spec, subject, WALLED, tolerance=tolerance)):
            answer = api.apply(kind_of(obj), obj, **STRICT)
            assert holds(answer.body, obj), f"{obj['kind']} {obj['metadata']['name']} would be written again and again"

    settled()


def _ours(spec: Document) -> tuple[Spec | None, str]:
    try:
        return parse("digits", spec), ""
    except SpecError as error:
        return None, str(error)


def _without_namespace(obj: dict[str, Any]) -> dict[str, Any]:
    """For kubectl, which fills in the test's own."""
    return {k: v for k, v in obj.items() if k not in {"metadata", "status"}} | {
        "metadata": {"name": obj["metadata"]["name"]}
    }
