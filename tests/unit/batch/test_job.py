"""The Job of a runner: what its pod may do, what it reads, and when another Job replaces it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from halcyon.api.documents.batch_documents import BatchBucket, BatchRecipe
from halcyon.api.documents.store_identity import StoreIdentity
from halcyon.api.policy.downloads import SiteDownloads
from halcyon.api.policy.network import SiteNetwork
from halcyon.api.policy.site_policy import SitePolicy
from halcyon.api.spec.parse import parse_batch as parse
from halcyon.batch.bucket_access import refusal
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


def runner_job(site: BatchSite = SITE, model: ServedModel = MODEL, **others: Any) -> dict[str, Any]:
    return job(BATCH, parse(spec(**others)), model, site)


def pod(document: dict[str, Any]) -> Any:
    return document["spec"]["template"]["spec"]


def test_a_runner_complies_with_the_restricted_standard_and_has_no_token() -> None:
    built = pod(runner_job())
    container = built["containers"][0]
    assert built["automountServiceAccountToken"] is False
    assert built["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert built["securityContext"]["runAsNonRoot"] is True
    assert built["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert (built["priorityClassName"], built["imagePullSecrets"]) == ("lowest", [{"name": "pull"}])
    assert {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")} == {
        "/tmp",
        "/data/output",
    }
    assert "runAsUser" not in pod(runner_job(BatchSite("i", fixed_user_ids=False)))["securityContext"]


@pytest.mark.parametrize(("limit", "cpu", "expected"), [("", "1", None), ("2", "1", "2"), ("500m", "2", "2")])
def test_runner_has_the_cpu_limit_of_the_site_or_its_request(limit: str, cpu: str, expected: str | None) -> None:
    resources = pod(runner_job(BatchSite("i", cpu_limit=limit), cpu=cpu))["containers"][0]["resources"]
    assert resources["limits"].get("cpu") == expected
    assert resources["requests"]["cpu"] == cpu


def test_a_recipe_has_what_the_spec_and_the_model_say() -> None:
    hooks = {"configMap": "night-hooks", "prepare": "hooks.py:prepare"}
    built = pod(runner_job(hooks=hooks, gentle=True, maxFailures=3, rowsPerRequest=4, workers=2))
    recipe = BatchRecipe.from_json(built["containers"][0]["args"][0])
    assert vars(recipe) == {
        "owner": "u-1", "name": "night", "model": "Digits", "url": "http://digits:8000",
        "input": "/data/input/a/rows.npz", "output": "/data/output/night", "input_format": "", "output_format": "",
        "prepare": "/etc/halcyon/hooks/hooks.py:prepare", "finish": "", "rows_per_request": 4, "max_rows": 2,
        "rows_per_part": None, "max_failures": 3, "gentle": True, "workers": 2, "api_key_file": "/etc/halcyon/api-keys",
        "input_bucket": None, "output_bucket": None,
    }  # fmt: skip
    assert {volume["name"]: volume for volume in built["volumes"]}["hooks"] == {
        "name": "hooks",
        "configMap": {"name": "night-hooks"},
    }


def test_a_runner_of_buckets_mounts_their_secrets_and_no_claim() -> None:
    identity = {"aws": {"roleARN": "arn:aws:iam::123456789012:role/batches"}}
    built = pod(
        runner_job(
            BatchSite("i", downloads=SiteDownloads(proxy="http://proxy.example.com:3128", ca_config_map="cas")),
            input={"uri": "s3://sets/2026/rows.npz", "credentials": {"secretName": "reader"}, "region": "eu-1"},
            output={"uri": "s3://results/night", "credentials": {"identity": identity}},
            serviceAccountName="batches",
        )
    )
    recipe = BatchRecipe.from_json(built["containers"][0]["args"][0])
    assert recipe.input_bucket == BatchBucket(
        url="s3://sets/2026/rows.npz",
        region="eu-1",
        limit_bytes=20 * 2**30,
        credentials="/halcyon/input/credentials",
        proxy="http://proxy.example.com:3128",
        ca="/halcyon/input/ca/ca.crt",
    )
    bucket = recipe.output_bucket
    assert bucket is not None
    assert (bucket.url, bucket.token, bucket.limit_bytes) == (
        "s3://results/night",
        "/halcyon/output/identity/token",
        None,
    )
    assert StoreIdentity.from_json(bucket.identity or "").name == "arn:aws:iam::123456789012:role/batches"
    volumes = {volume["name"]: volume for volume in built["volumes"]}
    assert volumes["input-credentials"]["secret"] == {"secretName": "reader"}
    assert volumes["copy"]["emptyDir"] == {"sizeLimit": "20Gi"}
    assert not any("persistentVolumeClaim" in volume for volume in built["volumes"])
    mounts = {mount["mountPath"]: mount for mount in built["containers"][0]["volumeMounts"]}
    assert mounts.keys() == {
        "/tmp", "/etc/halcyon/api-keys", "/data/input", "/halcyon/input/credentials", "/halcyon/input/ca",
        "/halcyon/output/identity", "/halcyon/output/ca",
    }  # fmt: skip
    assert {volume["name"] for volume in built["volumes"]} == {mount["name"] for mount in mounts.values()}
    assert (built["serviceAccountName"], built["automountServiceAccountToken"]) == ("batches", False)


def test_the_network_policy_reaches_the_servers_of_buckets_at_their_ports() -> None:
    peers = SiteNetwork(operator=({"namespaceSelector": {}},), sources=({"ipBlock": {"cidr": "10.0.0.0/8"}},))
    buckets = parse(
        spec(
            input={"uri": "s3://sets/rows.npz", "endpoint": "http://minio.storage.svc:9000"},
            output={"uri": "gs://results/night"},
        )
    )
    rule = network_policy(BATCH, buckets, SITE, peers)["spec"]["egress"][-1]
    assert rule["to"] == [{"ipBlock": {"cidr": "10.0.0.0/8"}}]
    assert [port["port"] for port in rule["ports"]] == [443, 9000]


@pytest.mark.parametrize(
    ("policy", "changed", "message"),
    [
        ({"models": {"endpoints": ["https://a.example.com"]}}, {"endpoint": "https://b.example.com"},
         "spec.input.endpoint or credentials.identity.endpoint is https://b.example.com, which this site does not allow"),
        ({"models": {"urls": ["s3://models"]}}, {}, "spec.input.uri is s3://sets/rows.npz, which this site does not allow"),
        ({"models": {"secrets": ["sets-*"]}}, {"credentials": {"secretName": "other"}}, "the Secrets other"),
        ({"models": {"sources": ["image"]}}, {}, "spec.input is of kind uri, which this site does not allow"),
    ],
)  # fmt: skip
def test_a_bucket_outside_the_limits_of_the_site_is_refused(
    policy: dict[str, Any], changed: dict[str, Any], message: str
) -> None:
    site = SitePolicy.model_validate(policy)
    batch_spec = parse(spec(input={"uri": "s3://sets/rows.npz"} | changed))
    assert message in refusal(batch_spec, "team", site)
    assert not refusal(parse(spec()), "team", site)
    exempt = SitePolicy.model_validate({**policy, "exemptNamespaces": ["team"]})
    assert not refusal(batch_spec, "team", exempt)


def test_the_secret_of_the_operator_is_refused_even_without_a_policy() -> None:
    batch_spec = parse(spec(output={"uri": "s3://results/night", "credentials": {"secretName": "halcyon-tls"}}))
    message = "spec.output.credentials.secretName is halcyon-tls, the Secret with the operator's private key"
    assert message in refusal(batch_spec, "halcyon-system", SitePolicy(), "halcyon-system/halcyon-tls")
    assert not refusal(batch_spec, "team", SitePolicy(), "halcyon-system/halcyon-tls")


def test_another_service_account_needs_the_leave_of_the_site() -> None:
    batch_spec = parse(spec(serviceAccountName="admin"))
    assert "spec.serviceAccountName is admin, which this site does not allow" in refusal(
        batch_spec, "team", SitePolicy()
    )
    allowed = SitePolicy.model_validate({"pods": {"serviceAccounts": ["admin"]}})
    assert not refusal(batch_spec, "team", allowed)


def test_one_claim_for_input_and_output_is_one_volume() -> None:
    both = runner_job(output={"persistentVolumeClaim": {"claimName": "sets", "path": "night"}})
    assert [volume["name"] for volume in pod(both)["volumes"]] == ["tmp", "input", "api-keys"]
    assert [mount["name"] for mount in pod(both)["containers"][0]["volumeMounts"]] == [
        "tmp",
        "input",
        "input",
        "api-keys",
    ]


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
    digests = [runner["metadata"]["annotations"][SPEC_ANNOTATION] for runner in (runner_job(), runner_job(**changed))]
    assert (digests[0] != digests[1]) is is_replaced


def test_another_image_of_the_site_leaves_a_job_alone() -> None:
    digests = [runner_job(BatchSite(image))["metadata"]["annotations"][SPEC_ANNOTATION] for image in ("a", "b")]
    assert digests[0] == digests[1]


def test_a_final_failure_ends_the_job_and_a_lost_node_doesnt() -> None:
    final, lost, _ = runner_job()["spec"]["podFailurePolicy"]["rules"]
    assert (final["action"], final["onExitCodes"]["values"]) == ("FailJob", [2])
    assert (lost["action"], lost["onPodConditions"][0]["type"]) == ("Ignore", "DisruptionTarget")


def test_a_paused_runner_does_not_count_as_a_failed_pod() -> None:
    """Kubernetes deletes the pod of a suspended Job, and its runner ends with a status of its own."""
    rule = runner_job()["spec"]["podFailurePolicy"]["rules"][-1]
    assert (rule["action"], rule["onExitCodes"]["values"]) == ("Ignore", [75])


def test_the_network_policy_admits_the_operator_and_reaches_the_model() -> None:
    peers: tuple[dict[str, Any], ...] = ({"namespaceSelector": {}},)
    policy = network_policy(BATCH, parse(spec()), SITE, SiteNetwork(operator=peers))["spec"]
    assert policy["ingress"] == [{"from": [*peers], "ports": [{"port": 8080, "protocol": "TCP"}]}]
    assert policy["egress"][0]["to"] == [
        {"podSelector": {"matchLabels": {"serving.halcyon.dev/model-deployment": "digits"}}}
    ]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"modelDeployment": "other/digits"}, "spec.modelDeployment"),
        ({"hooks": {"configMap": "h"}}, "spec.hooks has neither prepare nor finish"),
        ({"hooks": {"configMap": "h", "prepare": "../x.py:f"}}, "spec.hooks.prepare"),
        ({"rowsPerRequest": 0}, "spec.rowsPerRequest"),
        ({"bucket": "s3://x"}, "spec.bucket"),
        ({"input": {}}, "spec.input needs exactly one of persistentVolumeClaim, uri"),
        ({"cpu": "1m"}, 'spec.cpu is "1m": must be between 10m and 256'),
        ({"input": {"uri": "ftp://x/y"}}, "spec.input.uri"),
        ({"input": {"uri": "az://sets/y"}}, "spec.input.uri is az://sets/y but endpoint is not set"),
        ({"input": {"uri": "gs://sets/y", "region": "eu"}}, "spec.input.region applies only to s3://"),
        (
            {"output": {"persistentVolumeClaim": {"claimName": "a", "path": "b"}, "endpoint": "https://x"}},
            "apply only to uri",
        ),
        ({"output": {"uri": "s3://sets/y", "credentials": {}}}, "has neither secretName nor identity"),
        (
            {
                "output": {
                    "uri": "s3://sets/y",
                    "credentials": {
                        "identity": {
                            "azure": {
                                "clientID": "0" * 8 + "-0000" * 3 + "-" + "0" * 12,
                                "tenantID": "0" * 8 + "-0000" * 3 + "-" + "0" * 12,
                            }
                        }
                    },
                }
            },
            "spec.output.credentials.identity does not match s3://sets/y",
        ),
        # The API server accepts this offset.
        (
            {"deadline": "2026-12-01T06:00:00+99:99"},
            "spec.deadline is '2026-12-01T06:00:00+99:99'; it must be a time, for example 2026-12-01T06:00:00Z",
        ),
    ],
)
def test_an_invalid_spec_is_refused_with_the_field(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r"spec\.") as caught:
        parse(json.loads(json.dumps(spec(**changed))))
    assert message in str(caught.value)
    assert "Value error" not in str(caught.value)
    assert "spec.:" not in str(caught.value)
