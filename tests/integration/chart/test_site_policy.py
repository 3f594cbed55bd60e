"""sitePolicy in the chart: the operator gets it as a file, the API server as admission policies, and both mean the same."""

import argparse
import json
from typing import Any

import kubernetes_validate
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from generators import admission_policies
from halcyon.api.policy.site_policy import ANYTHING, SitePolicy
from halcyon.control.runtime import settings as options
from tests.integration.charts import NAMESPACED, Object, Values, find, laid_over, pod, refusal, render
from tests.policies import EVERY, policies

pytestmark = pytest.mark.more

KINDS = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
EVERYTHING: Values = {"sitePolicy": EVERY.to_dict()}
TEAMS = ("team-a", "team-b")


def admitted(objects: list[Object]) -> list[Object]:
    """The admission policies, as Python makes them: without labels."""
    policies = [o for o in objects if o["kind"] in KINDS]
    return [o | {"metadata": {"name": o["metadata"]["name"]}} for o in policies]


def handed(objects: list[Object]) -> SitePolicy:
    """The policy as the operator reads it."""
    return SitePolicy.from_json(find(objects, "ConfigMap", "halcyon-site-policy")["data"]["policy.json"])


def by_name(objects: list[Object]) -> dict[tuple[str, str], Object]:
    return {(o["kind"], o["metadata"]["name"]): o for o in objects}


def test_an_empty_policy_renders_no_object() -> None:
    objects = render()
    assert not KINDS & {o["kind"] for o in objects}
    assert not [o for o in objects if o["kind"] == "ConfigMap"]
    assert "site-policy" not in json.dumps(pod(objects))


def test_exempt_namespaces_reach_the_operator_without_any_limit() -> None:
    """It denies some things by default, such as other ServiceAccounts and private networks."""
    objects = render({"sitePolicy": {"exemptNamespaces": ["platform"]}})
    assert handed(objects) == SitePolicy(exempt_namespaces=("platform",))
    assert "--site-policy-file=/etc/halcyon/site-policy/policy.json" in pod(objects)["containers"][0]["args"]
    assert not KINDS & {o["kind"] for o in objects}


def test_the_operator_and_the_api_server_get_the_same_policy() -> None:
    @given(policies())
    @settings(
        deadline=None, database=None, phases=[Phase.generate], max_examples=6, suppress_health_check=list(HealthCheck)
    )
    def same(policy: SitePolicy) -> None:
        objects = render({"sitePolicy": policy.to_dict()})
        if policy == ANYTHING:
            return
        assert handed(objects) == policy
        expected = admission_policies.policies(policy, "halcyon-site-policy")
        assert by_name(admitted(objects)) == by_name(expected)

    same()
    exempt = EVERY.model_copy(update={"exempt_namespaces": ("platform", "halcyon-system")})
    objects = render({"sitePolicy": exempt.to_dict()})
    assert handed(objects) == exempt
    assert by_name(admitted(objects)) == by_name(admission_policies.policies(exempt, "halcyon-site-policy"))


def test_the_operator_reads_the_file_and_rolls_when_it_changes() -> None:
    objects = render(EVERYTHING)
    spec = pod(objects)
    (container,) = spec["containers"]
    (argument,) = (a for a in container["args"] if a.startswith("--site-policy-file="))
    (mount,) = (m for m in container["volumeMounts"] if m["name"] == "site-policy")
    (volume,) = (v for v in spec["volumes"] if v["name"] == "site-policy")

    assert argument == f"--site-policy-file={mount['mountPath']}/policy.json"
    assert mount["readOnly"]
    assert volume["configMap"] == {"name": "halcyon-site-policy"}
    other = render(laid_over(EVERYTHING, {"sitePolicy": {"limits": {"replicas": 9}}}))
    sums = [find(o, "Deployment")["spec"]["template"]["metadata"]["annotations"] for o in (objects, other)]
    assert sums[0]["checksum/site-policy"] != sums[1]["checksum/site-policy"]


def test_the_file_is_an_option_of_the_operator(tmp_path: Any) -> None:
    file = tmp_path / "policy.json"
    file.write_text(find(render(EVERYTHING), "ConfigMap", "halcyon-site-policy")["data"]["policy.json"])
    parser = argparse.ArgumentParser(exit_on_error=False)
    options.add_arguments(parser)
    needed = ["--namespace=n", "--operator-image=o", "--balancer-image=b", "--server-image=s"]
    assert options.of(parser.parse_args([*needed, f"--site-policy-file={file}"])).site_policy == EVERY


@pytest.mark.parametrize(
    ("create", "rendered"), [("auto", False), (True, True), (False, False)], ids=["auto", "true", "false"]
)
def test_cluster_scoped_objects_for_listed_namespaces_are_made_only_on_request(create: Any, *, rendered: bool) -> None:
    values = laid_over(laid_over(NAMESPACED, EVERYTHING), {"admissionPolicy": {"create": create}})
    objects = render(values)
    assert handed(objects) == EVERY
    expected = admission_policies.policies(EVERY, "halcyon-site-policy", namespaces=TEAMS) if rendered else []
    assert by_name(admitted(objects)) == by_name(expected)


@pytest.mark.parametrize("version", ["1.31", "1.36"])
def test_the_objects_are_valid_for_the_versions_that_are_supported(version: str) -> None:
    for obj in render(EVERYTHING, flags=("--kube-version", version)):
        if obj["kind"] in KINDS:
            kubernetes_validate.validate(obj, version, strict=True)


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"images": {"registries": ["nvidia"]}}, "/sitePolicy/images/registries/0"),
        ({"images": {"pinned": "Both"}}, "/sitePolicy/images/pinned"),
        ({"triton": {"refuseBelow": "26.13"}}, "/sitePolicy/triton/refuseBelow"),
        ({"triton": {"warnBelow": 26.07}}, "/sitePolicy/triton/warnBelow"),
        ({"triton": {"digests": {"sha256:abc": "26.07"}}}, "/sitePolicy/triton/digests"),
        ({"models": {"sources": ["s3"]}}, "/sitePolicy/models/sources/0"),
        ({"models": {"secrets": ["a/b"]}}, "/sitePolicy/models/secrets/0"),
        ({"pods": {"nodeSelectors": ["a=b=c"]}}, "/sitePolicy/pods/nodeSelectors/0"),
        ({"limits": {"replicas": 0}}, "/sitePolicy/limits/replicas"),
        ({"limits": {"gpusPerNamespace": -1}}, "/sitePolicy/limits/gpusPerNamespace"),
        ({"traffic": {"gateways": ["edge"]}}, "/sitePolicy/traffic/gateways/0"),
        ({"traffic": {"hostnames": ["*"]}}, "/sitePolicy/traffic/hostnames/0"),
        ({"exemptNamespaces": ["Team"]}, "/sitePolicy/exemptNamespaces/0"),
        ({"hostnames": []}, "/sitePolicy"),
    ],
    ids=str,
)
def test_a_limit_that_the_operator_would_not_read_is_refused_by_helm(values: Values, path: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        SitePolicy.from_json(json.dumps(values))
    assert f"at '{path}" in refusal({"sitePolicy": values})
