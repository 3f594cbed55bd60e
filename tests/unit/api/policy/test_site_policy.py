"""The site's policy: what its documents may say, and what each limit finds in a spec."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from generators import admission_policies
from halcyon.api.policy.python_rules import PolicySubject, full_name, triton_version
from halcyon.api.policy.rules import RULES, at, most_replicas, refusals, warnings
from halcyon.api.policy.site_policy import ANYTHING, SitePolicy
from halcyon.api.spec.model import SOURCE_KINDS, Source
from halcyon.api.spec.parse import parse
from halcyon.api.types import ApiModel
from tests.drawn import draws
from tests.policies import EVERY, LIMITS, policies, policy
from tests.strategies import Document, documents, specs
from tests.unit.api.spec_cases import document

DIGEST = "sha256:" + "a" * 64
FEW = draws(0.8)


def policy_subject(spec: Document, limits: Document, namespace: str = "team") -> PolicySubject:
    return PolicySubject(parse("digits", spec), namespace, policy(limits))


@given(specs())
@FEW
def test_every_spec_is_allowed_without_a_policy(spec: Any) -> None:
    assert refusals(PolicySubject(spec, "team", ANYTHING)) == warnings(PolicySubject(spec, "team", ANYTHING)) == []
    assert most_replicas(PolicySubject(spec, "team", ANYTHING)) is None


@given(documents(), policies())
@FEW
def test_an_exempt_namespace_may_do_what_it_likes(spec: Document, limits: SitePolicy) -> None:
    free = limits.model_copy(update={"exempt_namespaces": ("team",)})
    assert refusals(PolicySubject(parse("digits", spec), "team", free)) == []


def test_every_limit_has_a_rule_except_the_sum_of_gpus() -> None:
    limits = {
        f"{section.alias or name}.{field.alias or key}"
        for name, section in SitePolicy.model_fields.items()
        if isinstance(part := getattr(ANYTHING, name), ApiModel)
        for key, field in type(part).model_fields.items()
    }
    assert limits - {rule.value for rule in RULES} == {"limits.gpusPerNamespace", "triton.digests"}
    assert limits == {*LIMITS, "limits.gpusPerNamespace", "triton.digests"}


def test_a_policy_can_name_every_kind_of_source() -> None:
    assert policy({"models.sources": list(SOURCE_KINDS)}).models.sources == SOURCE_KINDS
    assert set(SOURCE_KINDS) <= {info.alias or name for name, info in Source.model_fields.items()}


@pytest.mark.parametrize("path", LIMITS)
def test_a_limit_refuses_with_field_value_and_limit_and_allows_the_rest(path: str) -> None:
    limit, bad, words, good = LIMITS[path]
    subject = policy_subject(bad, {path: limit})
    messages = warnings(subject) if path == "triton.warnBelow" else refusals(subject)
    assert len(messages) == 1
    for word in words:
        assert word in messages[0], (word, messages[0])
    fine = policy_subject(good, {path: limit})
    assert refusals(fine) == warnings(fine) == []


def test_a_list_with_nothing_in_it_allows_nothing_and_says_so() -> None:
    (message,) = refusals(
        policy_subject(document("runtime.image", "nvcr.io/nvidia/tritonserver:26.07-py3"), {"images.registries": []})
    )
    assert "allowed registries: none" in message


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("tritonserver", "docker.io/library/tritonserver"),
        ("nvidia/tritonserver:1", "docker.io/nvidia/tritonserver:1"),
        ("docker.io/tritonserver:1", "docker.io/library/tritonserver:1"),
        ("docker.io/nvidia/tritonserver", "docker.io/nvidia/tritonserver"),
        ("localhost/tritonserver", "localhost/tritonserver"),
        ("registry:5000/a/b", "registry:5000/a/b"),
        ("nvcr.io/nvidia/tritonserver", "nvcr.io/nvidia/tritonserver"),
    ],
)
def test_an_image_is_completed_as_the_runtime_does_it(image: str, name: str) -> None:
    assert full_name(image) == name


@pytest.mark.parametrize(
    ("entry", "image", "fits"),
    [
        ("registry.example.com", "registry.example.com/a:1", True),
        ("registry.example.com", "registry.example.com.evil.io/a:1", False),
        ("registry.example.com", "registry.example.com:5000/a", False),
        ("registry.example.com", "a/registry.example.com/b", False),
        ("registry.example.com/ml", "registry.example.com/ml/a", True),
        ("registry.example.com/ml", "registry.example.com/mlx/a", False),
        ("registry.example.com/ml", "registry.example.com/ml:1", True),
        ("registry.example.com/ml", "registry.example.com/ml@" + DIGEST, True),
        ("docker.io/nvidia", "nvidia/tritonserver", True),
        ("docker.io/tritonserver", "docker.io/tritonserver", False),
        ("docker.io/library", "tritonserver", True),
    ],
)
def test_a_registry_is_not_what_only_begins_like_it(entry: str, image: str, fits: bool) -> None:
    assert (refusals(policy_subject(document("runtime.image", image), {"images.registries": [entry]})) == []) is fits


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("tritonserver:26.07-py3", "26.07"),
        ("tritonserver:26.07", "26.07"),
        ("tritonserver:26.07.1", "26.07"),
        ("tritonserver:26.070", ""),
        ("tritonserver:v26.07", ""),
        ("tritonserver:latest", ""),
        ("tritonserver", ""),
        ("registry:26.07/tritonserver", ""),
        (f"tritonserver@{DIGEST}", "26.05"),
        (f"tritonserver:26.07@{DIGEST}", "26.05"),
        ("tritonserver:26.07@sha256:" + "b" * 64, ""),
    ],
)
def test_a_release_is_known_by_its_tag_or_the_sites_digests(image: str, version: str) -> None:
    assert triton_version(image, policy({"triton.digests": {DIGEST: "26.05"}})) == version


@pytest.mark.parametrize(
    ("spec", "limits", "most"),
    [
        (document(), {}, None),
        (document(), {"limits.replicas": 4}, 4),
        (document("runtime.gpu.count", 2), {"limits.gpusPerModel": 5}, 2),
        (document("runtime.gpu.count", 2), {"limits.gpusPerModel": 5, "limits.replicas": 1}, 1),
        (document("runtime.gpu.count", 0), {"limits.gpusPerModel": 0}, None),
        (document("runtime.gpu.count", 1), {"limits.gpusPerModel": 0}, 0),
    ],
)
def test_the_maximum_of_replicas_follows_from_replicas_and_gpus(
    spec: Document, limits: Document, most: int | None
) -> None:
    assert most_replicas(policy_subject(spec, limits)) == most
    exempt = PolicySubject(
        parse("digits", spec), "team", policy(limits).model_copy(update={"exempt_namespaces": ("team",)})
    )
    assert most_replicas(exempt) is None


@given(policies())
def test_a_policy_is_read_back_from_its_document(limits: SitePolicy) -> None:
    assert SitePolicy.from_json(json.dumps(limits.to_dict())) == limits


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "EOF"),
        ("[]", "it is []"),
        ('{"limit": {}}', "limit is {}"),
        ('{"limits": {"replicas": 0}}', "limits.replicas is 0"),
        ('{"limits": {"replicas": "8"}}', "limits.replicas is '8'"),
        ('{"triton": {"refuseBelow": "26.13"}}', "triton.refuseBelow is '26.13'"),
        ('{"images": {"registries": ["nvidia"]}}', "images.registries.0 is 'nvidia'"),
        ('{"images": {"registries": ["https://nvcr.io"]}}', "images.registries.0 is 'https://nvcr.io'"),
    ],
)
def test_a_document_that_is_wrong_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        SitePolicy.from_json(text)
    assert words in str(error.value)


def test_the_chart_has_what_the_admission_policy_is_made_of() -> None:
    assert yaml.safe_load(Path("charts/halcyon/files/site-policy.yaml").read_text()) == admission_policies.source()


def test_limits_that_are_not_set_make_no_admission_policy() -> None:
    assert admission_policies.policies(ANYTHING, "halcyon-site-policy") == []
    objects = admission_policies.policies(policy({"limits.replicas": 8}), "halcyon-site-policy")
    assert [(o["kind"], o["metadata"]["name"]) for o in objects] == [
        ("ValidatingAdmissionPolicy", "halcyon-site-policy"),
        ("ValidatingAdmissionPolicyBinding", "halcyon-site-policy"),
    ]
    assert len(objects[0]["spec"]["validations"]) == 1
    assert {"name": "limitsReplicas", "expression": "8"} in objects[0]["spec"]["variables"]


def test_advice_is_a_policy_of_its_own_that_refuses_nothing() -> None:
    bindings = {
        o["metadata"]["name"]: o["spec"]
        for o in admission_policies.policies(EVERY, "p")
        if o["kind"].endswith("Binding")
    }
    assert {name: spec["validationActions"] for name, spec in bindings.items()} == {
        "p": ["Deny"],
        "p-warnings": ["Warn"],
    }


def test_a_path_leads_to_a_limit() -> None:
    assert at(policy({"limits.gpusPerModel": 3}), "limits.gpusPerModel") == 3


@given(st.data())
@FEW
def test_a_limit_that_is_wider_refuses_no_more(data: st.DataObject) -> None:
    spec = data.draw(specs())
    narrow = data.draw(st.integers(1, 20))
    wide = data.draw(st.integers(narrow, 40))
    for path in ("limits.replicas", "limits.gpusPerModel"):
        if refusals(PolicySubject(spec, "team", policy({path: wide}))):
            assert refusals(PolicySubject(spec, "team", policy({path: narrow})))
