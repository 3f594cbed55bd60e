"""Reviews that the API server answers: the objects, and what an answer means."""

from __future__ import annotations

from typing import Any, cast

import pytest

from halcyon.dashboard.authorization import ModelReviews
from halcyon.kube.auth.callers import ResourceAttributes, Reviews, User
from halcyon.kube.auth.namespaced_reviews import NamespacedReviews
from halcyon.kube.auth.reviews import ApiServerReviews, access_review
from halcyon.kube.client import Kube
from halcyon.kube.kinds import LOCAL_SUBJECT_ACCESS_REVIEW, SUBJECT_ACCESS_REVIEW, Kind
from halcyon.metricsapi.auth import metric_reviewer

ADA = User("ada", ("staff",), {"scopes": ("a", "b")})


class Api:
    """An API server that keeps the reviews, and answers each with one status."""

    def __init__(self, status: dict[str, Any] | None) -> None:
        self.status = status
        self.created: list[tuple[str, Any]] = []

    async def read(self, path: str) -> dict[str, Any]:
        raise AssertionError(path)

    async def create(self, kind: Kind, obj: Any, *, namespace: str = "", dry_run: bool = False) -> dict[str, Any]:
        assert kind.kind == obj["kind"]
        assert not dry_run
        self.created.append((namespace, obj))
        return obj if self.status is None else {**obj, "status": self.status}


def by_api_server(api: Api) -> Reviews:
    return ApiServerReviews(cast("Kube", api))


def by_namespace(api: Api) -> Reviews:
    return NamespacedReviews(api, ("team",), monotonic=lambda: 0.0, wall=lambda: 0.0)


def test_an_access_review_leaves_out_what_is_not_asked_about() -> None:
    attributes = ResourceAttributes("list", "serving.halcyon.dev", "v1alpha1", "modeldeployments")
    assert access_review(SUBJECT_ACCESS_REVIEW, ADA, attributes) == {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": "ada",
            "groups": ["staff"],
            "extra": {"scopes": ["a", "b"]},
            "resourceAttributes": {
                "verb": "list",
                "group": "serving.halcyon.dev",
                "version": "v1alpha1",
                "resource": "modeldeployments",
            },
        },
    }


def test_a_local_access_review_is_an_object_of_its_namespace() -> None:
    attributes = ResourceAttributes("get", "serving.halcyon.dev", "v1alpha1", "modeldeployments", "team", "m")
    review = access_review(LOCAL_SUBJECT_ACCESS_REVIEW, ADA, attributes)
    assert review["metadata"] == {"namespace": "team"}
    assert review["spec"]["resourceAttributes"].items() >= {"namespace": "team", "name": "m"}.items()


@pytest.mark.parametrize(
    ("status", "allowed"), [({"allowed": True}, True), ({"allowed": False}, False), ({}, False), (None, False)]
)
@pytest.mark.parametrize(("make", "namespace"), [(by_api_server, ""), (by_namespace, "team")])
async def test_a_user_may_what_the_api_server_allows(
    make: Any, namespace: str, status: dict[str, Any] | None, allowed: bool
) -> None:
    api = Api(status)
    reviews = make(api)
    assert await metric_reviewer(reviews)(ADA, namespace="team", metric="queuedepth") is allowed
    [(created_in, review)] = api.created
    assert created_in == namespace
    assert reviews.covers_all_namespaces is not bool(namespace)
    assert review["spec"]["resourceAttributes"] == {
        "verb": "list",
        "group": "external.metrics.k8s.io",
        "version": "v1beta1",
        "resource": "queuedepth",
        "namespace": "team",
    }


@pytest.mark.parametrize(
    ("status", "account"),
    [
        ({"authenticated": True, "audiences": ["halcyon-collector"], "user": {"username": "x"}}, ("x", "")),
        (
            {
                "authenticated": True,
                "audiences": ["halcyon-collector"],
                "user": {"username": "x", "extra": {"authentication.kubernetes.io/pod-name": ["m-balancer-0"]}},
            },
            ("x", "m-balancer-0"),
        ),
        ({"authenticated": True, "user": {"username": "x"}}, None),
        ({"authenticated": False, "audiences": ["halcyon-collector"], "user": {"username": "x"}}, None),
        ({}, None),
    ],
)
async def test_an_agents_token_must_be_for_the_audience(
    status: dict[str, Any], account: tuple[str, str] | None
) -> None:
    assert await by_api_server(Api(status)).agent("t", "halcyon-collector") == account


async def test_a_users_token_is_reviewed_without_an_audience() -> None:
    api = Api(
        {"authenticated": True, "user": {"username": "ada", "groups": ["staff"], "extra": {"scopes": ["a", "b"]}}}
    )
    assert await by_api_server(api).user("t") == ADA
    assert api.created[0][1]["spec"] == {"token": "t"}


@pytest.mark.parametrize(("name", "verb"), [("", "list"), ("m", "get")])
@pytest.mark.parametrize(("make", "review_namespace"), [(by_api_server, ""), (by_namespace, "team")])
async def test_the_dashboard_reviews_lists_and_single_models(
    make: Any, review_namespace: str, name: str, verb: str
) -> None:
    api = Api({"allowed": True})
    reviews = ModelReviews(make(api))
    assert await reviews.may_see(ADA, namespace="team", name=name)
    assert reviews.covers_all is not bool(review_namespace)
    [(namespace, review)] = api.created
    assert namespace == review_namespace
    assert review["spec"]["resourceAttributes"] == {
        "verb": verb,
        "group": "serving.halcyon.dev",
        "version": "v1alpha1",
        "resource": "modeldeployments",
        "namespace": "team",
        **({"name": name} if name else {}),
    }


async def test_models_outside_the_operators_namespaces_are_denied_without_a_review() -> None:
    api = Api({"allowed": True})
    assert not await ModelReviews(by_namespace(api)).may_see(ADA, namespace="other", name="m")
    assert api.created == [], "the API server would deny the review, and a permission would seem to be missing"
