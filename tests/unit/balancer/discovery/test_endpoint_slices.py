"""What an agent's watch makes of an object that it can't read. Not here: the watch itself (tests/integration/agent/test_kube_watch.py)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from halcyon.balancer.discovery import endpoint_slices
from halcyon.balancer.discovery.kube_watch import ApiServerAccess, Watch
from halcyon.triton.client import Endpoint

Kept = Mapping[str, tuple[Endpoint, ...]]


def slice_of(name: str, endpoint: Any) -> dict[str, Any]:
    labels = {endpoint_slices.SERVICE_LABEL: "digits-a"}
    meta = {"name": name, "resourceVersion": "7", "labels": labels}
    return {"metadata": meta, "addressType": "IPv4", "endpoints": [endpoint]}


def endpoint(pod: str) -> dict[str, Any]:
    return {"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "name": pod}}


def test_an_unreadable_slice_hides_no_other_and_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Kept] = []
    session: Any = None  # nothing is asked for here
    watch: Watch[tuple[Endpoint, ...]] = Watch(
        session,
        ApiServerAccess("https://api"),
        "/slices",
        params={},
        project=lambda item: endpoint_slices.of_slice(item, slots={"digits-a": "a"}),
        on_change=seen.append,
    )

    watch._event({"type": "ADDED", "object": slice_of("one", endpoint("a"))})
    watch._event({"type": "ADDED", "object": slice_of("two", endpoint("b"))})
    for _ in range(2):
        assert watch._event({"type": "MODIFIED", "object": slice_of("two", "10.0.0.1")}) == "7"
    assert list(seen[-1]) == ["one"]
    watch._event({"type": "MODIFIED", "object": slice_of("two", endpoint("b"))})

    assert list(seen[-1]) == ["one", "two"]
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() or []]
    assert [line["object"] for line in lines if "object" in line] == ["two"]


def test_pods_of_all_slices_count_beyond_a_thousand() -> None:
    pods = [f"digits-a-{number}" for number in range(1050)]
    slices = [
        {**slice_of(f"slice-{first}", None), "endpoints": [endpoint(pod) for pod in pods[first : first + 100]]}
        for first in range(0, len(pods), 100)
    ]
    endpoints = endpoint_slices.merge(
        endpoint_slices.of_slice(document, slots={"digits-a": "a"}) for document in slices
    )
    assert {listed.pod for listed in endpoints} == set(pods)
