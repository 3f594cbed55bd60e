"""Which changes of pods a model's balancers are told of."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon.api.documents.pod_notice import Notice
from halcyon.control.reconcile.pod_notices import of_change
from halcyon.kube.client import Object
from halcyon.render import names
from tests.unit.control.scope_builders import pod


def server(
    *, ready: bool, deleted: bool = False, uid: str = "one", ip: str | None = "10.0.0.7", **labels: Any
) -> Object:
    document = pod("p", ready=ready, deleted=deleted)
    document["metadata"]["uid"] = uid
    document["metadata"]["labels"] = names.labels("digits", names.SERVER) | {names.SLOT_LABEL: "b"} | labels
    document["status"]["podIP"] = ip
    return document


@pytest.mark.parametrize(
    ("before", "after", "notice"),
    [
        (server(ready=False), server(ready=True), Notice("p", "b", "10.0.0.7", "ready")),
        (server(ready=True), server(ready=False), Notice("p", "b", "10.0.0.7", "unready")),
        (server(ready=True), server(ready=True, deleted=True), Notice("p", "b", "10.0.0.7", "leaving")),
        (server(ready=False, ip=None), server(ready=False, ip=None, deleted=True), Notice("p", "b", "", "leaving")),
        (server(ready=True), server(ready=True), None),
        (server(ready=False, ip=None), server(ready=False), None),
        (server(ready=True, deleted=True), server(ready=False, deleted=True), None),
        (None, server(ready=True), None),
        (server(ready=True, uid="another"), server(ready=True, deleted=True), None),
        (server(ready=False), server(ready=True, ip=None), None),
    ],
)
def test_a_pods_notice_is_sent_once(before: Object | None, after: Object, notice: Notice | None) -> None:
    assert of_change(before, after) == notice


@pytest.mark.parametrize("labels", [{names.COMPONENT_LABEL: names.BALANCER}, {names.COMPONENT_LABEL: "else"}])
def test_only_servers_have_news(labels: dict[str, Any]) -> None:
    assert of_change(server(ready=False, **labels), server(ready=True, **labels)) is None
