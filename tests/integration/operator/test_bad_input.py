"""What the operator makes of input that is wrong, and of things that lack: it says so, and what was accepted keeps serving."""

import copy
import re
from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from halcyon.kube import kinds
from tests.integration.operator_process import CRD_PATH, Operator, crd
from tests.integration.operator_space import FILES, MERGE, Object, Space, deployment, files
from tests.integration.waiting import always, until

Versions = dict[tuple[str, str], str]
MODEL: Object = deployment()["spec"]["model"]
GPU_TARGET = {"maxReplicas": 3, "targets": {"gpuUtilization": 70}}
BAD: dict[str, tuple[Object, list[str]]] = {
    "min above max": (
        deployment(scaling={"minReplicas": 5, "maxReplicas": 2}),
        ["spec.scaling.minReplicas is 5", "spec.scaling.maxReplicas, which is 2"],
    ),
    "preferred batch above max batch": (
        deployment(batching={"maxBatchSize": 8, "preferredBatchSizes": [4, 16]}),
        ["spec.batching.preferredBatchSizes is [4, 16]", "spec.batching.maxBatchSize, which is 8"],
    ),
    "max batch 0": (
        deployment(batching={"maxBatchSize": 0}),
        ["spec.batching.maxBatchSize", "0", "greater than or equal to 1"],
    ),
    "two sources": (
        deployment(model={"source": {**MODEL["source"], "persistentVolumeClaim": {"claimName": "c"}}}),
        ["spec.model.source needs exactly one of configMap, persistentVolumeClaim, image, uri"],
    ),
    "GPU target without GPU": (
        deployment(scaling=GPU_TARGET),
        ["spec.scaling.targets.gpuUtilization is set but the model has no GPU to measure"],
    ),
    "name too long": (
        deployment("x" * 53),
        ["metadata.name is '" + "x" * 53 + "' (53 characters)", "at most 52 characters"],
    ),
}


OWN_WORDS = {"greater than or equal to 1": "must be a whole number from 1 to 65536"}
"""Words of the API server, and those of the operator for the same rule."""


def is_same_message(text: str, words: list[str]) -> bool:
    """API server and operator say it alike, but for the words around a bound, and brackets."""
    plain = re.sub(r"should be ", "", text)
    return all(re.sub(r"should be ", "", word) in plain for word in words)


@pytest.mark.parametrize("case", BAD)
def test_the_api_server_refuses_it_and_names_field_value_and_limit(space: Space, case: str) -> None:
    obj, words = BAD[case]
    answer = space.try_apply(obj)
    assert answer.status == 422, answer
    assert is_same_message(str((answer.body or {})["message"]), words)


def test_an_unknown_field_is_refused_under_strict_validation(space: Space) -> None:
    answer = space.try_apply(deployment(batching={"maxBatchsize": 8}))
    assert answer.status in {400, 422, 500}, answer
    assert "maxBatchsize" in str((answer.body or {})["message"])


def without_rules(value: Any) -> Any:
    """A schema as an earlier version may have had it: no rules, no bounds, unknown fields kept."""
    if isinstance(value, list):
        return [without_rules(v) for v in value]
    if not isinstance(value, dict):
        return value
    kept = {k: without_rules(v) for k, v in value.items() if k not in {"x-kubernetes-validations", "minimum", "oneOf"}}
    if value.get("type") == "object" and "properties" in value:
        kept["x-kubernetes-preserve-unknown-fields"] = True
    return kept


def set_schema(cluster: Cluster, schema: Any) -> None:
    # Whatever its version is: its own controllers write it, too.
    patch = [{"op": "replace", "path": "/spec/versions/0/schema", "value": schema}]
    assert cluster.api.call("PATCH", CRD_PATH, patch, content_type="application/json-patch+json").status == 200


@pytest.fixture
def stored(cluster: Cluster, space: Space) -> dict[str, Versions]:
    """The bad specs, stored over good ones by an API server that didn't know the rules; by name."""
    specs = {f"m{n}": obj for n, (obj, _) in enumerate(v for k, v in BAD.items() if k != "name too long")}
    space.apply(files())
    for name in specs:
        space.apply(deployment(name))
    for name in specs:
        space.wait_settled(name)
    before = {name: versions(space, name) for name in specs}
    schema = crd()["spec"]["versions"][0]["schema"]
    set_schema(cluster, without_rules(copy.deepcopy(schema)))
    try:
        for name, obj in specs.items():
            bad = {**obj, "metadata": {"name": name}}
            until(lambda bad=bad: space.try_apply(bad).status, lambda s: s == 200, goal=f"{name} is stored")  # type: ignore[misc]  # a default
        long = BAD["name too long"][0]
        until(lambda: space.try_apply(long).status, lambda s: s in {200, 201}, goal="the long name is stored")
    finally:
        set_schema(cluster, schema)
        until(
            lambda: space.try_apply(deployment("probe", batching={"maxBatchSize": 0}), dry=True).status,
            lambda s: s == 422,
            goal="the rules are back",
        )
    return before


def versions(space: Space, name: str) -> Versions:
    """Of the objects that a ModelDeployment serves by, without those whose status counts pods."""
    return {
        key: obj["metadata"]["resourceVersion"]
        for key, obj in space.children().items()
        if obj["metadata"]["labels"]["serving.halcyon.dev/model-deployment"] == name
        and key[0] not in {"Deployment", "PodDisruptionBudget"}
    }


def test_a_stored_spec_breaking_a_new_rule_is_rejected_and_keeps_serving(
    space: Space, stored: dict[str, Versions], operator: Operator
) -> None:
    for name, before in stored.items():
        message = space.wait_condition("Accepted", "False", "Invalid", name=name)
        words = [OWN_WORDS.get(word, word) for word in list(BAD.values())[int(name[1:])][1]]
        assert is_same_message(message, words), (name, message)
        assert "the last accepted spec stays in effect" in message
        assert space.condition("Stalled", name)[:2] == ("True", "Invalid")
        assert versions(space, name) == before
        if name == "m4":
            # This rule stands above the whole spec, so the API server holds it against a change of the count as well.
            body = {"spec": {"replicas": 2}}
            path = kinds.MODEL_DEPLOYMENT.path(space.namespace, name, "scale")
            assert space.api.call("PATCH", path, body, content_type=MERGE).status == 422
            continue
        space.scale(2, name)
        until(lambda name=name: space.replicas(name), lambda n: n == 2, goal=f"/scale of {name} works")  # type: ignore[misc]  # a default
        # The files come by another watch than the models: one that was planned before them has said so.
        (event,) = until(
            lambda name=name: [  # type: ignore[misc]  # a default
                e for e in space.events(name) if e["type"] == "Warning" and e["reason"] != "SourceNotFound"
            ],
            bool,
            goal="an event tells of it",
        )
        assert event["reason"] == "Invalid"
        assert is_same_message(event["note"], words)
    long = BAD["name too long"][0]["metadata"]["name"]
    message = space.wait_condition("Accepted", "False", "Invalid", name=long)
    assert is_same_message(message, BAD["name too long"][1])
    assert not [name for _, name in space.children() if name.startswith(long)]
    space.apply(deployment("m0"))
    space.wait_condition("Accepted", "True", name="m0")
    assert space.condition("Stalled", "m0")[0] == ""
    assert operator.complaints() == []


def test_a_missing_config_map_is_named_and_creation_resumes_by_itself(space: Space) -> None:
    space.apply(deployment())
    message = space.wait_condition("Accepted", "False", "SourceNotFound")
    assert message.startswith(f"spec.model.source.configMap.name: ConfigMap {space.namespace}/{FILES} doesn't exist")
    assert space.condition("Stalled")[0] == "True"
    assert space.children() == {}
    space.apply(files())
    space.wait_settled(limit_s=10)


def test_a_missing_key_is_named_with_the_existing_ones(space: Space) -> None:
    config_map = files()
    config_map["data"] = {"config.txt": "x"}
    space.apply(config_map, deployment())
    message = space.wait_condition("Accepted", "False", "SourceNotFound")
    assert message.startswith("spec.model.source.configMap.items: ConfigMap ")
    assert "has no key config.pbtxt; its keys are config.txt" in message
    space.apply(files())
    space.wait_settled(limit_s=10)


def test_a_missing_claim_is_named_and_creation_resumes_by_itself(space: Space) -> None:
    space.apply(deployment(model={"source": {"persistentVolumeClaim": {"claimName": "models"}}}))
    message = space.wait_condition("Accepted", "False", "SourceNotFound")
    expected = f"spec.model.source.persistentVolumeClaim.claimName: PersistentVolumeClaim {space.namespace}/models doesn't exist"
    assert message.startswith(expected)
    space.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "models"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
    )
    space.wait_condition("Accepted", "True")
    until(lambda: space.get(kinds.DEPLOYMENT, "m-a"), bool, goal="the servers are made")


def test_a_source_that_goes_leaves_what_serves(space: Space) -> None:
    space.serve()
    before = versions(space, "m")
    space.delete(kinds.CONFIG_MAP, FILES)
    message = space.wait_condition("Accepted", "False", "SourceNotFound")
    assert "the last accepted spec stays in effect" in message
    space.scale(2)
    until(lambda: space.status()["readyReplicas"], lambda n: n == 2, goal="the count follows")
    always(lambda: versions(space, "m"), lambda v: v == before, goal="the children are as before", for_s=1)
    space.apply(files())
    space.wait_settled(limit_s=10)
    assert versions(space, "m") == before


def test_a_wrong_configuration_starts_no_pod_and_a_corrected_one_does(space: Space) -> None:
    space.apply(files("max_batch_size: eight"), deployment())
    message = space.wait_condition("Accepted", "False", "ModelConfigInvalid")
    assert f"ConfigMap {space.namespace}/{FILES}, key config.pbtxt: config.pbtxt, line 1, column 17" in message
    assert space.get(kinds.DEPLOYMENT, "m-a") is None
    space.apply(files())
    space.wait_condition("Accepted", "True")
    until(lambda: space.get(kinds.DEPLOYMENT, "m-a"), bool, goal="the servers are made")


def test_a_configuration_that_becomes_wrong_leaves_what_serves(space: Space) -> None:
    space.serve()
    before = versions(space, "m")
    space.apply(files("max_batch_size: eight"))
    message = space.wait_condition("Accepted", "False", "ModelConfigInvalid")
    assert "the last accepted spec stays in effect" in message
    always(lambda: versions(space, "m"), lambda v: v == before, goal="the children are as before", for_s=1)
    assert space.condition("Ready")[0] == "True"
    space.apply(files())
    space.wait_settled(limit_s=10)
    assert versions(space, "m") == before
