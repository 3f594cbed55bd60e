"""Which right a refusal names, in the API server's own words, and when it is there again."""

from __future__ import annotations

import logging

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from halcyon.kube.rbac_denials import DENIAL_TTL_S, RbacDenials, RbacDenialsPage, Right, named, needed_right

USER = 'User "system:serviceaccount:halcyon-system:halcyon"'
PODS = f'pods is forbidden: {USER} cannot list resource "pods" in API group "" at the cluster scope'
STATUS = (
    f'modeldeployments.serving.halcyon.dev "m" is forbidden: {USER} cannot patch resource "modeldeployments/status" '
    'in API group "serving.halcyon.dev" in the namespace "team"'
)
GRANT = (
    'roles.rbac.authorization.k8s.io "m-balancer" is forbidden: user "system:serviceaccount:halcyon-system:halcyon" '
    '(groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:\n'
    '{APIGroups:["discovery.k8s.io"], Resources:["endpointslices"], Verbs:["list" "watch"]}\n'
    '{APIGroups:[""], Resources:["configmaps"], ResourceNames:["m-balancer"], Verbs:["get"]}'
)


@pytest.mark.parametrize(
    ("message", "rights"),
    [
        (PODS, [Right("", "pods", "list")]),
        (STATUS, [Right("serving.halcyon.dev", "modeldeployments/status", "patch")]),
        (
            GRANT,
            [
                Right("discovery.k8s.io", "endpointslices", "list"),
                Right("discovery.k8s.io", "endpointslices", "watch"),
                Right("", "configmaps", "get"),
            ],
        ),
        # Of admission and of a quota: no right of the operator's.
        ('admission webhook "policy.example.com" denied the request: no', []),
        ('pods "m" is forbidden: exceeded quota: gpus, requested: nvidia.com/gpu=1', []),
    ],
)
def test_a_refusal_names_the_rights_that_are_missing_or_none(message: str, rights: list[Right]) -> None:
    assert list(named(message)) == rights


@pytest.mark.parametrize(
    ("method", "path", "watching", "namespace", "right"),
    [
        ("GET", "/api/v1/pods", False, "", Right("", "pods", "list")),
        ("GET", "/api/v1/namespaces/team/pods", True, "team", Right("", "pods", "watch")),
        ("GET", "/api/v1/namespaces/team/secrets/x", False, "team", Right("", "secrets", "get")),
        ("POST", "/api/v1/namespaces/t/pods/p/eviction", False, "t", Right("", "pods/eviction", "create")),
        ("PATCH", "/apis/apps/v1/namespaces/t/deployments/d", False, "t", Right("apps", "deployments", "patch")),
        ("DELETE", "/apis/apps/v1/namespaces/t/deployments/d", False, "t", Right("apps", "deployments", "delete")),
        (
            "POST",
            "/apis/authentication.k8s.io/v1/tokenreviews",
            False,
            "",
            Right("authentication.k8s.io", "tokenreviews", "create"),
        ),
        ("GET", "/version", False, "", Right("", "", "list")),
    ],
)
def test_a_request_is_known_by_its_right(method: str, path: str, watching: bool, namespace: str, right: Right) -> None:
    assert needed_right(method, path, watching=watching) == (namespace, right)


def page(rights: RbacDenials) -> list[str]:
    registry = CollectorRegistry()
    registry.register(RbacDenialsPage(rights))
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


def test_a_right_is_missing_until_an_answer_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="halcyon.kube.rbac_denials")
    rights = RbacDenials(lambda: 0.0)
    for _ in range(3):
        rights.refused("GET", "/api/v1/pods", PODS)
    rights.refused("PATCH", "/apis/rbac.authorization.k8s.io/v1/namespaces/team/roles/m-balancer", GRANT)
    assert page(rights) == [
        'halcyon_permissions_missing{group="",resource="configmaps",verb="get"} 1.0',
        'halcyon_permissions_missing{group="",resource="pods",verb="list"} 1.0',
        'halcyon_permissions_missing{group="discovery.k8s.io",resource="endpointslices",verb="list"} 1.0',
        'halcyon_permissions_missing{group="discovery.k8s.io",resource="endpointslices",verb="watch"} 1.0',
    ]
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 4
    # Others' answers change nothing.
    rights.answered("GET", "/api/v1/pods", watching=True)
    rights.answered("PATCH", "/apis/rbac.authorization.k8s.io/v1/namespaces/other/roles/m-balancer")
    assert len(page(rights)) == 4
    rights.answered("PATCH", "/apis/rbac.authorization.k8s.io/v1/namespaces/team/roles/another")
    assert page(rights) == ['halcyon_permissions_missing{group="",resource="pods",verb="list"} 1.0']
    rights.answered("GET", "/api/v1/pods")
    assert page(rights) == []
    assert caplog.records[-1].getMessage() == "a missing permission has been granted"


def test_an_unused_right_is_forgotten() -> None:
    now = 0.0
    rights = RbacDenials(lambda: now)
    rights.refused("GET", "/api/v1/pods", PODS)
    now = DENIAL_TTL_S
    assert rights.missing
    now += 1
    assert not rights.missing


def test_a_refusal_by_admission_is_no_missing_right() -> None:
    rights = RbacDenials(lambda: 0.0)
    rights.refused("PATCH", "/apis/apps/v1/namespaces/t/deployments/d", "admission webhook denied the request")
    assert not rights.missing
