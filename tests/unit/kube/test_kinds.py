"""Paths of kinds, keys, and which error an HTTP status is."""

from __future__ import annotations

import pytest

from halcyon.kube import errors, kinds
from halcyon.kube.kinds import CHILDREN, Key, kind_of


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (kinds.POD.path(), "/api/v1/pods"),
        (kinds.POD.path("team"), "/api/v1/namespaces/team/pods"),
        (
            kinds.MODEL_DEPLOYMENT.path("team", "digits", "status"),
            "/apis/serving.halcyon.dev/v1alpha1/namespaces/team/modeldeployments/digits/status",
        ),
        (
            kinds.API_SERVICE.path(name="v1beta1.external.metrics.k8s.io"),
            "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.external.metrics.k8s.io",
        ),
        (kinds.POD.path("a/b", "../c"), "/api/v1/namespaces/a%2Fb/pods/..%2Fc"),
    ],
)
def test_a_path_holds_its_names_and_keeps_them_in_place(path: str, expected: str) -> None:
    assert path == expected


def test_every_child_s_kind_is_found_by_its_object() -> None:
    for kind in CHILDREN:
        assert kind_of({"apiVersion": kind.api_version, "kind": kind.kind}) is kind


def test_an_object_that_is_no_child_has_no_kind() -> None:
    with pytest.raises(KeyError):
        kind_of({"apiVersion": "v1", "kind": "Pod"})


def test_a_key_reads_as_people_write_it() -> None:
    assert str(Key("team", "digits")) == "team/digits"
    assert str(Key("", "node")) == "node"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (404, errors.NotFound),
        (409, errors.Conflicted),
        (410, errors.Gone),
        (400, errors.Refused),
        (401, errors.Refused),
        (403, errors.Refused),
        (422, errors.Refused),
        (408, errors.Busy),
        (429, errors.Busy),
        (500, errors.Busy),
        (503, errors.Busy),
    ],
)
def test_an_http_status_becomes_the_error_with_its_remedy(status: int, error: type[errors.ApiError]) -> None:
    api_error = errors.of_status(status, "PATCH x: no", reason="Why", retry_after_s=3.0)

    assert type(api_error) is error
    assert (str(api_error), api_error.status, api_error.reason, api_error.retry_after_s) == (
        "PATCH x: no",
        status,
        "Why",
        3.0,
    )
    assert isinstance(api_error, errors.HalcyonError)
