"""The Job of a runner: what its pod may do, what it reads, and when another Job replaces it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from halcyon.api.batch_inference import parse
from halcyon.api.documents.batch_documents import BatchRecipe
from halcyon.api.policy.network import SiteNetwork
from halcyon.batch.job import SPEC_ANNOTATION, BatchSite, ServedModel, job, network_policy

BATCH = {"metadata": {"namespace": "team", "name": "night", "uid": "u-1"}}
MODEL = ServedModel(name="digits", model="Digits", max_rows=8, api_keys="keys")
SITE = BatchSite("r/halcyon-bench:1", "lowest", ("pull",))


def spec(**others: Any) -> dict[str, Any]:
    return {
        "modelDeployment": "digits",
        "input": {"persistentVolumeClaim": {"claimName": "sets", "path": "a/rows.npz"}},
        "output": {"persistentVolumeClaim": {"claimName": "results", "path": "night"}},
    } | others


def made(site: BatchSite = SITE, model: ServedModel = MODEL, **others: Any) -> dict[str, Any]:
    return job(BATCH, parse(spec(**others)), model, site)


def pod(document: dict[str, Any]) -> Any:
    return document["spec"]["template"]["spec"]


def test_a_runner_complies_with_the_restricted_standard_and_has_no_token() -> None:
    built = pod(made())
    container = built["containers"][0]
    assert built["automountServiceAccountToken"] is False
    assert built["securityContext"]["runAsNonRoot"] is True
    assert built["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert (built["priorityClassName"], built["imagePullSecrets"]) == ("lowest", [{"name": "pull"}])
    assert {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")} == {
        "/tmp",
        "/data/output",
    }
    assert "runAsUser" not in pod(made(BatchSite("i", fixed_user_ids=False)))["securityContext"]


def test_a_recipe_has_what_the_spec_and_the_model_say() -> None:
    hooks = {"configMap": "night-hooks", "prepare": "hooks.py:prepare"}
    built = pod(made(hooks=hooks, gentle=True, maxFailures=3, rowsPerRequest=4, workers=2))
    recipe = BatchRecipe.from_json(built["containers"][0]["args"][0])
    assert vars(recipe) == {
        "owner": "u-1", "name": "night", "model": "Digits", "url": "http://digits:8000",
        "input": "/data/input/a/rows.npz", "output": "/data/output/night", "input_format": "", "output_format": "",
        "prepare": "/etc/halcyon/hooks/hooks.py:prepare", "finish": "", "rows_per_request": 4, "max_rows": 2,
        "rows_per_part": None, "max_failures": 3, "gentle": True, "workers": 2, "api_key_file": "/etc/halcyon/api-keys",
    }  # fmt: skip
    assert {one["name"]: one for one in built["volumes"]}["hooks"] == {
        "name": "hooks",
        "configMap": {"name": "night-hooks"},
    }


def test_one_claim_for_input_and_output_is_one_volume() -> None:
    both = made(output={"persistentVolumeClaim": {"claimName": "sets", "path": "night"}})
    assert [one["name"] for one in pod(both)["volumes"]] == ["tmp", "input", "api-keys"]
    assert [one["name"] for one in pod(both)["containers"][0]["volumeMounts"]] == ["tmp", "input", "input", "api-keys"]


@pytest.mark.parametrize(
    ("changed", "is_replaced"),
    [
        ({"maxFailures": 5}, True),
        ({"gentle": True}, True),
        ({"memory": "2Gi"}, True),
        ({"suspend": True}, False),
        ({"deadline": "2026-12-01T06:00:00Z"}, False),
        ({"maxReplicas": 3}, False),
        ({"atZero": "Wake"}, False),
    ],
)
def test_a_change_of_what_a_runner_does_replaces_its_job(changed: dict[str, Any], *, is_replaced: bool) -> None:
    digests = [one["metadata"]["annotations"][SPEC_ANNOTATION] for one in (made(), made(**changed))]
    assert (digests[0] != digests[1]) is is_replaced


def test_another_image_of_the_site_leaves_a_job_alone() -> None:
    digests = [made(BatchSite(image))["metadata"]["annotations"][SPEC_ANNOTATION] for image in ("a", "b")]
    assert digests[0] == digests[1]


def test_a_final_failure_ends_the_job_and_a_lost_node_doesnt() -> None:
    final, lost = made()["spec"]["podFailurePolicy"]["rules"]
    assert (final["action"], final["onExitCodes"]["values"]) == ("FailJob", [2])
    assert (lost["action"], lost["onPodConditions"][0]["type"]) == ("Ignore", "DisruptionTarget")


def test_the_network_policy_admits_the_operator_and_reaches_the_model() -> None:
    peers: tuple[dict[str, Any], ...] = ({"namespaceSelector": {}},)
    policy = network_policy(BATCH, parse(spec()), SiteNetwork(operator=peers))["spec"]
    assert policy["ingress"] == [{"from": [*peers], "ports": [{"port": 8080, "protocol": "TCP"}]}]
    assert policy["egress"][0]["to"] == [
        {"podSelector": {"matchLabels": {"serving.halcyon.dev/model-deployment": "digits"}}}
    ]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"modelDeployment": "other/digits"}, "spec.modelDeployment"),
        ({"hooks": {"configMap": "h"}}, "spec.hooks has neither prepare nor finish"),
        ({"hooks": {"configMap": "h", "prepare": "../x.py:f"}}, "spec.hooks.prepare"),
        ({"rowsPerRequest": 0}, "spec.rowsPerRequest"),
        ({"bucket": "s3://x"}, "spec.bucket"),
    ],
)
def test_an_invalid_spec_is_refused_with_the_field(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=r"spec\.") as caught:
        parse(json.loads(json.dumps(spec(**changed))))
    assert said in str(caught.value)
