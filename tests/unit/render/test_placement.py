"""Placement of server pods, their ServiceAccount, and pods without fixed user ids."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from halcyon.api.spec.parse import parse
from halcyon.render import revision
from halcyon.render.metadata import Object
from tests.unit.api.spec_cases import document, node_terms
from tests.unit.render.pod_security import violations
from tests.unit.render.rendered import SITE, SUBJECT, children, pods

ZONES = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}


def server_of(path: str = "", value: Any = None) -> Object:
    templates = pods(children(parse("digits", document(path, value))))
    (pod_spec,) = (template["spec"] for template in templates if template["spec"]["containers"][0]["name"] == "triton")
    return pod_spec


def test_a_spread_covers_the_models_servers_and_replaces_the_default() -> None:
    (default,) = server_of()["topologySpreadConstraints"]
    (zones,) = server_of("runtime.placement.topologySpreadConstraints", [ZONES])["topologySpreadConstraints"]

    assert (default["topologyKey"], default["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")
    assert zones == ZONES | {"labelSelector": default["labelSelector"]}
    assert default["labelSelector"]["matchLabels"]["serving.halcyon.dev/model-deployment"] == "digits"
    assert "topologySpreadConstraints" not in server_of("runtime.placement.topologySpreadConstraints", [])


def test_a_rollout_counts_only_its_own_pods_when_it_spreads_them() -> None:
    """Otherwise both new balancers go to the node that has none of the old ones."""
    for template in pods(children(parse("digits", document()))):
        (constraint,) = template["spec"]["topologySpreadConstraints"]
        assert constraint["matchLabelKeys"] == ["pod-template-hash"]


def test_an_affinity_is_the_pods_own_in_the_form_of_kubernetes() -> None:
    affinity = {"nodeAffinity": node_terms({"key": "zone", "operator": "In", "values": ["a", "b"]})}

    assert server_of("runtime.placement.affinity", affinity)["affinity"] == affinity
    assert "affinity" not in server_of()


def test_a_named_service_account_brings_no_token() -> None:
    pod = server_of("runtime.serviceAccountName", "models")

    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("models", False)
    assert server_of()["serviceAccountName"] == "default"


def test_no_pod_has_a_user_or_group_if_the_platform_assigns_them() -> None:
    spec, assigned = parse("digits", document()), replace(SITE, fixed_user_ids=False)
    for template in pods(children(spec, site=assigned)):
        everything = [template["spec"], *template["spec"]["initContainers"], *template["spec"]["containers"]]
        for part in everything:
            assert not {"runAsUser", "runAsGroup", "fsGroup"} & part["securityContext"].keys()
        assert violations(template) == []
    assert revision.site_digest(assigned) != revision.site_digest(SITE)
    assert revision.key(SUBJECT, spec, None) == revision.render(SUBJECT, spec, assigned, None, number=1).key


@pytest.mark.parametrize(
    ("resources", "cpu", "memory"),
    [
        ({"limits": {"cpu": "4", "memory": "8Gi"}}, "4", "8Gi"),
        ({"requests": {"cpu": "2000m", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1024Mi"}}, "2", "1024Mi"),
        ({"limits": {"cpu": "1", "memory": "128Mi"}}, "1", "256Mi"),
        ({"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "8Gi"}}, None, "256Mi"),
        ({"requests": {"cpu": "1"}, "limits": {"memory": "8Gi"}}, None, "256Mi"),
        ({}, None, "256Mi"),
    ],
    ids=["limits", "equal requests", "small", "smaller request", "no CPU limit", "none"],
)
def test_the_fetcher_keeps_no_pod_from_the_qos_class_guaranteed(
    resources: dict[str, Any], cpu: str | None, memory: str
) -> None:
    (fetcher,) = server_of("runtime", {"resources": resources, "sharedMemory": "64Mi"})["initContainers"]
    fetcher_resources = fetcher["resources"]

    assert (fetcher_resources["limits"].get("cpu"), fetcher_resources["limits"]["memory"]) == (cpu, memory)
    assert (fetcher_resources["requests"] == fetcher_resources["limits"]) == (cpu is not None)
