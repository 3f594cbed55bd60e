"""Writes on condition of a resource version, and dry runs, by the responses of an API server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typing_extensions import override

from halcyon.kube import kinds
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube.client import Target
from halcyon_cli.kube.object_writer import ObjectWriter
from tests.unit.cli.stand_in_api import failure


class RecordedWriter(ObjectWriter):
    """A writer with one prepared response, which keeps the last request."""

    def __init__(self, response: tuple[int, Any]) -> None:
        self.target, self.namespace, self.host = Target("tune"), "team", "https://cluster"
        self.response = response
        self.request: tuple[str, str, Any, Any] = ("", "", None, None)

    @override
    def _send(self, method: str, path: str, query: Any = None, body: Any = None, **_: Any) -> tuple[int, bytes, str]:
        self.request = method, path, query, body
        status, document = self.response
        return status, json.dumps(document).encode(), "reason"


BODY = {"metadata": {"annotations": {"a": "b"}}, "spec": {"replicas": 2}}


def test_change_names_the_version_that_was_seen() -> None:
    writer = RecordedWriter((200, {"metadata": {"name": "m"}}))
    assert writer.change_version(kinds.MODEL_DEPLOYMENT, "m", BODY, "7") == {"metadata": {"name": "m"}}
    method, path, _, body = writer.request
    assert (method, path.rpartition("/namespaces/")[2]) == ("PATCH", "team/modeldeployments/m")
    assert body == {"metadata": {"annotations": {"a": "b"}, "resourceVersion": "7"}, "spec": {"replicas": 2}}


def test_change_of_a_newer_object_is_not_made() -> None:
    assert RecordedWriter(failure(409, "conflict")).change_version(kinds.MODEL_DEPLOYMENT, "m", BODY, "7") is None


@pytest.mark.parametrize(
    ("status", "words"), [(403, "you need patch on modeldeployments"), (422, "rejects the change")]
)
def test_change_that_is_denied_is_an_error(status: int, words: str) -> None:
    with pytest.raises(ClusterError, match=words):
        RecordedWriter(failure(status, "no")).change_version(kinds.MODEL_DEPLOYMENT, "m", BODY, "7")


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ((200, {}), ""),
        (failure(422, "maxBatchSize: at most 8"), "maxBatchSize: at most 8"),
        (failure(403, "denied by policy"), "denied by policy"),
        (failure(400, "the webhook says no"), "the webhook says no"),
        (failure(403, 'User "u" cannot patch resource "modeldeployments"'), ""),
        (failure(409, "conflict"), ""),
        (failure(503, "overloaded"), ""),
    ],
    ids=["accepted", "schema", "policy", "webhook", "no right", "changed", "overloaded"],
)
def test_rejection_is_that_of_a_dry_run(response: tuple[int, Any], expected: str) -> None:
    writer = RecordedWriter(response)
    assert writer.rejection(kinds.MODEL_DEPLOYMENT, "m", BODY) == expected
    assert writer.request[2] == {"dryRun": "All"}
