"""What the chart allows the operator and users to do: least rights, in both modes."""

import re
from pathlib import Path

import pytest
import yaml

from halcyon.render import balancer
from halcyon.render.site import Subject
from tests.integration.charts import (
    CHART,
    CRDS_CHART,
    LOCAL,
    MONITORING,
    NAMESPACED,
    Values,
    find,
    helm,
    laid_over,
    render,
    rules,
)
from tests.yaml_text import all_loaded

pytestmark = pytest.mark.more


@pytest.mark.parametrize("values", [{}, NAMESPACED], ids=["cluster", "namespaced"])
def test_no_role_holds_a_wildcard_or_a_dangerous_right(values: Values) -> None:
    for role, rule in rules(render(values)):
        held = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
        assert not any("*" in item for item in held), f"{role}: {rule}"
        assert not {"escalate", "bind", "impersonate", "nonResourceURLs"} & {*held, *rule}, f"{role}: {rule}"
        writes = {"create", "update", "patch", "delete", "deletecollection"} & set(rule["verbs"])
        # The restart of a container by an annotation. Whoever may change Deployments may change their pods anyway.
        restarts = rule["resources"] == ["pods"] and rule["verbs"] == ["patch"]
        if writes and not restarts:
            assert not {"pods", "pods/exec", "pods/attach", "serviceaccounts/token", "nodes"} & set(rule["resources"])
            assert not any(r.endswith("webhookconfigurations") for r in rule["resources"])
            assert not {"clusterroles", "clusterrolebindings", "customresourcedefinitions"} & set(rule["resources"])


def test_listed_namespaces_bring_no_cluster_scoped_object() -> None:
    objects = render(NAMESPACED, flags=("--skip-tests", "--api-versions", MONITORING))
    cluster_wide = {"ClusterRole", "ClusterRoleBinding", "APIService", "CustomResourceDefinition"}
    assert not cluster_wide & {o["kind"] for o in objects}
    assert {o["metadata"]["namespace"] for o in objects} == {"halcyon-system", "team-a", "team-b"}
    everywhere = find(render({"networkPolicies": NAMESPACED["networkPolicies"]}), "ClusterRole")["rules"]
    for team in ("team-a", "team-b"):
        (role,) = [o for o in objects if o["kind"] == "Role" and o["metadata"]["namespace"] == team]
        (binding,) = [o for o in objects if o["kind"] == "RoleBinding" and o["metadata"]["namespace"] == team]
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "halcyon", "namespace": "halcyon-system"}]
        # The same as everywhere, but for what is of the whole cluster.
        *shared, access = role["rules"]
        assert shared == everywhere[: len(shared)]
        assert access["resources"] == ["localsubjectaccessreviews"]
        assert {tuple(r["resources"]) for r in everywhere[len(shared) :]} == {
            ("tokenreviews",),
            ("subjectaccessreviews",),
            ("apiservices",),
        }


def test_the_operator_may_write_what_its_calls_write_and_nothing_else() -> None:
    """Server-side apply is `patch`, and `create` where there is nothing yet; `update` is a PUT, which it never sends."""
    child = {"create", "patch", "delete"}
    children = {
        ("apps", "deployments"),
        ("apps", "controllerrevisions"),
        ("", "configmaps"),
        ("", "services"),
        ("", "serviceaccounts"),
        ("autoscaling", "horizontalpodautoscalers"),
        ("policy", "poddisruptionbudgets"),
        ("rbac.authorization.k8s.io", "roles"),
        ("rbac.authorization.k8s.io", "rolebindings"),
        ("gateway.networking.k8s.io", "httproutes"),
        ("gateway.networking.k8s.io", "grpcroutes"),
        ("networking.k8s.io", "networkpolicies"),
        ("batch", "jobs"),
    }
    objects = render({"networkPolicies": {"models": {"create": True}}})
    granted: dict[tuple[str, str], set[str]] = {}
    for rule in (*find(objects, "ClusterRole")["rules"], *find(objects, "Role")["rules"]):
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                granted.setdefault((group, resource), set()).update(set(rule["verbs"]) - {"get", "list", "watch"})
    assert {resource: verbs for resource, verbs in granted.items() if verbs} == dict.fromkeys(children, child) | {
        ("serving.halcyon.dev", "modeldeployments/status"): {"patch"},
        ("serving.halcyon.dev", "modeldeployments/scale"): {"patch"},
        ("serving.halcyon.dev", "batchinferences/status"): {"patch"},
        ("", "pods"): {"patch"},
        ("", "pods/eviction"): {"create"},
        ("events.k8s.io", "events"): {"create"},
        ("authentication.k8s.io", "tokenreviews"): {"create"},
        ("authorization.k8s.io", "subjectaccessreviews"): {"create"},
        ("apiregistration.k8s.io", "apiservices"): {"patch"},
        ("coordination.k8s.io", "leases"): {"create", "patch"},
        ("", "secrets"): {"patch"},
    }


def test_rights_to_network_policies_are_granted_only_if_these_are_enabled() -> None:
    """Whoever may change them may open what others have closed."""
    assert not any("networkpolicies" in rule["resources"] for _, rule in rules(render()))
    assert not any("networkpolicies" in r["resources"] for _, r in rules(render({"watchNamespaces": ["team-a"]})))


@pytest.mark.parametrize("values", [{}, NAMESPACED], ids=["cluster", "namespaced"])
def test_the_operators_own_secret_is_the_only_readable_one(values: Values) -> None:
    granted = [(role, r) for role, r in rules(render(values)) if "secrets" in r["resources"]]
    assert granted == [
        (
            "Role halcyon",
            {
                "apiGroups": [""],
                "resources": ["secrets"],
                "resourceNames": ["halcyon-tls"],
                "verbs": ["get", "patch"],
            },
        )
    ]


def test_the_operator_holds_what_it_grants_to_the_agents() -> None:
    """Without it the API server refuses the Role of the balancer's agent, for there is no `escalate`."""
    held = {
        (group, resource, verb)
        for rule in find(render(), "ClusterRole")["rules"]
        if "resourceNames" not in rule
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    granted = balancer.role(Subject("team", "m", "uid"))["rules"]
    assert {(r["apiGroups"][0], r["resources"][0], verb) for r in granted for verb in r["verbs"]} <= held


def test_permissions_that_runbooks_check_are_in_the_roles() -> None:
    held = {(resource, verb) for _, rule in rules(render()) for resource in rule["resources"] for verb in rule["verbs"]}
    pages = "".join(page.read_text() for page in (CHART.parents[1] / "docs" / "runbooks").glob("*.md"))
    checked = {(resource, verb) for verb, resource in re.findall(r"auth can-i ([a-z]+) ([a-z]+) ", pages)}
    assert ("leases", "patch") in checked
    assert checked <= held


def test_readers_of_metrics_are_granted_the_lower_case_names_that_clients_send() -> None:
    """client-go lower-cases a resource's name in the path: the HPA asks for `queuedepth` (seen in the audit log)."""
    (rule,) = find(render(), "ClusterRole", "halcyon-metrics-reader")["rules"]
    assert {"queueDepth", "gpuUtilization"} <= set(rule["resources"])
    assert {name.lower() for name in rule["resources"]} <= set(rule["resources"])


def test_users_can_do_what_their_role_says_but_never_write_status() -> None:
    objects = render()
    view, edit = find(objects, "ClusterRole", "halcyon-view"), find(objects, "ClusterRole", "halcyon-edit")
    assert {v for r in view["rules"] for v in r["verbs"]} == {"get", "list", "watch"}
    assert "rbac.authorization.k8s.io/aggregate-to-view" not in edit["metadata"]["labels"]
    assert all("modeldeployments/status" not in r["resources"] for r in edit["rules"])
    alone = helm("template", "halcyon", str(CRDS_CHART))
    for role in (d for d in yaml.safe_load_all(alone.stdout) if d and d["kind"] == "ClusterRole"):
        same = find(objects, "ClusterRole", role["metadata"]["name"])
        assert role["rules"] == same["rules"], "the chart halcyon-crds grants users something else"


@pytest.mark.parametrize("chart", [CHART, CRDS_CHART], ids=lambda chart: chart.name)
def test_user_roles_without_aggregation_can_still_be_bound(chart: Path) -> None:
    values = laid_over(LOCAL, {"rbac": {"aggregate": False}}) if chart == CHART else {"aggregate": False}
    done = helm("template", "halcyon", str(chart), values=values)
    objects = [obj for obj in all_loaded(done.stdout) if obj]

    for name in ("halcyon-view", "halcyon-edit"):
        role = find(objects, "ClusterRole", name)
        assert role["rules"] == find(render(), "ClusterRole", name)["rules"]
        assert not [label for label in role["metadata"]["labels"] if "aggregate" in label]
