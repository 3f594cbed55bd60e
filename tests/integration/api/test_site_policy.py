"""The site's policy on a real API server, with no operator beside it: what it refuses is what the operator would refuse."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from e2e.cluster.cluster import Cluster
from generators import admission_policies, crd
from halcyon.api.policy.python_rules import PolicySubject
from halcyon.api.policy.rules import refusals, warnings
from halcyon.api.policy.site_policy import SitePolicy
from halcyon.api.spec.parse import parse
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from tests.integration.connection import Connection
from tests.integration.waiting import until
from tests.policies import EVERY, LIMITS, pointed, policies, policy
from tests.strategies import Document, documents
from tests.unit.api.spec_cases import document

pytestmark = pytest.mark.more

CRD = Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False)
_GROUP = "admissionregistration.k8s.io/v1"
KINDS = {
    kind.kind: kind
    for kind in (
        Kind(_GROUP, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", namespaced=False),
        Kind(_GROUP, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", namespaced=False),
    )
}
NAMESPACE = Kind("v1", "Namespace", "namespaces", namespaced=False)
TOO_MANY = document() | {"replicas": 1000}
"""Above the count that every policy of these tests allows: how it is seen that the API server has begun to hold one."""
_numbers = itertools.count()


def at_most(policy: SitePolicy) -> SitePolicy:
    """With a limit on replicas."""
    limits = policy.limits.model_copy(update={"replicas": policy.limits.replicas or 900})
    return policy.model_copy(update={"limits": limits})


TERM = {"matchExpressions": [{"key": "elsewhere", "operator": "Exists"}]}


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Iterator[Connection]:
    """A connection to an API server that has the CRD."""
    with closing(Connection(cluster)) as connection:
        answer = connection.apply(CRD, crd.build(), fieldValidation="Strict")
        assert answer.status in {200, 201}, answer.message
        until(lambda: connection.try_spec(document()).status, lambda s: s == 201, goal="ModelDeployments are served")
        yield connection


class Site:
    """A namespace with a policy of its own, which the API server holds."""

    def __init__(self, api: Connection, policy: SitePolicy, *, namespace: str = "") -> None:
        number = next(_numbers)
        self.api, self.policy, self.namespace = api, policy, namespace or f"site-{number}"
        policies = admission_policies.policies(policy, f"halcyon-test-{number}", namespaces=(self.namespace,))
        self.objects = [(NAMESPACE, self.namespace), *((KINDS[o["kind"]], o["metadata"]["name"]) for o in policies)]
        for obj in ({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}, *policies):
            kind = KINDS.get(obj["kind"], NAMESPACE)
            answer = api.apply(kind, obj, fieldValidation="Strict")
            assert answer.status in {200, 201}, answer.message

    def wait(self) -> None:
        """Until the policy is held."""
        until(
            lambda: self.api.try_spec(TOO_MANY, namespace=self.namespace),
            lambda answer: answer.status == 403,
            goal=f"the policy of {self.namespace} is held",
        )

    def subject(self, spec: Document) -> PolicySubject:
        return PolicySubject(parse("digits", spec), self.namespace, self.policy)

    def remove(self) -> None:
        for kind, name in reversed(self.objects):
            self.api.send("DELETE", kind.path(name=name))


@pytest.fixture(scope="module")
def strict(api: Connection) -> Iterator[Site]:
    """Every limit at once."""
    site = Site(api, EVERY)
    try:
        site.wait()
        yield site
    finally:
        site.remove()


def test_the_api_server_finds_nothing_wrong_with_the_policies_themselves(strict: Site, api: Connection) -> None:
    """What its type checker and compiler say, once it has looked at them."""
    for kind, name in strict.objects:
        if kind.kind == "ValidatingAdmissionPolicy":
            status = until(
                lambda kind=kind, name=name: api.send("GET", kind.path(name=name)).body.get("status") or {},  # type: ignore[misc]  # defaults
                lambda status: status.get("observedGeneration"),
                goal=f"{name} was checked",
            )
            assert (status.get("typeChecking") or {}).get("expressionWarnings", []) == []


@pytest.fixture(scope="module")
def single(api: Connection) -> Iterator[dict[str, Site]]:
    """A site for each limit, by its path."""
    sites = {path: Site(api, at_most(policy({path: limit}))) for path, (limit, *_) in LIMITS.items()}
    yield sites
    for site in sites.values():
        site.remove()


@pytest.mark.parametrize("path", LIMITS)
def test_each_limit_has_the_operators_message_at_admission(api: Connection, single: dict[str, Site], path: str) -> None:
    _, bad, words, good = LIMITS[path]
    site = single[path]
    site.wait()
    answer = api.try_spec(bad, namespace=site.namespace)
    if path == "triton.warnBelow":
        (message,) = warnings(site.subject(bad))
        until(
            lambda: api.try_spec(bad, namespace=site.namespace).warnings,
            lambda reported: any(message in text for text in reported),
            goal="the warning is given",
        )
        assert answer.status == 201
    else:
        (message,) = refusals(site.subject(bad))
        assert answer.status == 403
        assert message in answer.message
    assert all(word in message for word in words)
    fine = api.try_spec(good, namespace=site.namespace)
    assert (fine.status, [w for w in fine.warnings if "sitePolicy" in w]) == (201, []), fine.message


@pytest.mark.parametrize(
    "affinity",
    [
        {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}},
        {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": TERM}]},
    ],
    ids=["required", "preferred"],
)
def test_a_node_label_in_an_affinity_is_refused(strict: Site, api: Connection, affinity: Document) -> None:
    spec = document("runtime.placement.affinity.nodeAffinity", affinity)
    answer = api.try_spec(spec, namespace=strict.namespace)
    assert (answer.status, "has the node labels elsewhere in" in answer.message) == (403, True), answer.message


def test_the_api_server_and_the_operator_agree_on_what_a_policy_forbids(api: Connection) -> None:
    drawn: list[SitePolicy] = []

    @given(policies())
    @settings(deadline=None, database=None, phases=[Phase.generate], max_examples=14)
    def draw(drawn_policy: SitePolicy) -> None:
        drawn.append(at_most(drawn_policy))

    draw()
    sites = [Site(api, site_policy) for site_policy in (EVERY, *drawn)]
    seen: Counter[str] = Counter()

    @given(st.sampled_from(sites), pointed(documents()))
    @settings(
        deadline=None,
        database=None,
        phases=[Phase.generate],
        max_examples=500,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    def agree(site: Site, spec: Document) -> None:
        if site.policy.pods.service_accounts is None:
            spec["runtime"].pop("serviceAccountName", None)  # without a list only the operator rejects it
        answer, ours = api.try_spec(spec, namespace=site.namespace), refusals(site.subject(spec))
        assert answer.status == (403 if ours else 201), f"{site.policy} {spec}: {ours} {answer.message}"
        # Several of a map are told in any order.
        assert not ours or "nodeSelector" in answer.message or any(message in answer.message for message in ours), (
            answer
        )
        seen["refused" if ours else "accepted"] += 1

    try:
        for site in sites:
            site.wait()
        agree()
    finally:
        for site in sites:
            site.remove()
    assert min(seen["refused"], seen["accepted"]) > 100, seen


@pytest.fixture
def older(api: Connection) -> Iterator[Site]:
    """A namespace that has a model from before its policy."""
    namespace = "older"
    api.apply(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    body = {
        "apiVersion": kinds.MODEL_DEPLOYMENT.api_version,
        "kind": kinds.MODEL_DEPLOYMENT.kind,
        "metadata": {"name": "digits", "namespace": namespace, "finalizers": ["example.com/hold"]},
        "spec": document() | {"replicas": 40},
    }
    assert api.send("POST", kinds.MODEL_DEPLOYMENT.path(namespace), body).status == 201
    site = Site(api, policy({"limits.replicas": 8}), namespace=namespace)
    try:
        site.wait()
        yield site
    finally:
        site.remove()


def merge(api: Connection, namespace: str, body: Any, subresource: str = "") -> int:
    path = kinds.MODEL_DEPLOYMENT.path(namespace, "digits", subresource)
    return api.send("PATCH", path, body, content="application/merge-patch+json").status


def test_objects_older_than_a_limit_may_be_relabelled_scaled_and_deleted(api: Connection, older: Site) -> None:
    namespace = older.namespace
    assert merge(api, namespace, {"metadata": {"labels": {"a": "b"}}}) == 200
    assert merge(api, namespace, {"spec": {"replicas": 39}}, "scale") == 200
    assert merge(api, namespace, {"spec": {"traffic": {"drainTimeout": "20s"}}}) == 403
    assert merge(api, namespace, {"spec": {"replicas": 8}}) == 200
    assert api.send("DELETE", kinds.MODEL_DEPLOYMENT.path(namespace, "digits")).status == 200
    assert merge(api, namespace, {"metadata": {"finalizers": None}}) == 200
