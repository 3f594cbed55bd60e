"""The chart under a GitOps tool: the same render each time, and no object that differs from the stored one forever.

Argo CD compares each list of a custom resource as a whole. If an item lacks a field to which the API server gives a
default, the object is OutOfSync after every sync.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.charts import CHART, EVERYTHING, LITTLE, LOCAL, Values, helm, laid_over, render

pytestmark = pytest.mark.more

DEFAULTED: dict[tuple[str, str], dict[str, Any]] = {
    ("ServiceMonitor", "endpoints[].relabelings[]"): {"action": "replace"},
    ("PodMonitor", "podMetricsEndpoints[].relabelings[]"): {"action": "replace"},
    ("HTTPRoute", "parentRefs[]"): {"group": "gateway.networking.k8s.io", "kind": "Gateway"},
    ("HTTPRoute", "rules[]"): {"matches": [{"path": {"type": "PathPrefix", "value": "/"}}]},
    ("HTTPRoute", "rules[].backendRefs[]"): {"group": "", "kind": "Service", "weight": 1},
}
"""Fields of list items that have a default in the CRDs of the Prometheus Operator and of the Gateway API."""
ALL: Values = laid_over(
    EVERYTHING,
    {
        "hostNetwork": False,
        "clusterName": "prod-eu-1",
        "dashboard": {"listen": "pod", "httpRoute": {"parentRefs": [{"name": "edge", "namespace": "infra"}]}},
    },
)


def _items(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each object in a list, with its path."""
    if isinstance(value, dict):
        for name, below in value.items():
            yield from _items(below, f"{path}.{name}".removeprefix("."))
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, dict):
                yield f"{path}[]", item
            yield from _items(item, f"{path}[]")


def test_custom_resources_state_the_defaults_of_their_list_items() -> None:
    checked = set()
    for obj in render(ALL):
        for path, item in _items(obj.get("spec", {})):
            if expected := DEFAULTED.get((obj["kind"], path)):
                checked.add((obj["kind"], path))
                assert {name: item.get(name) for name in expected} == expected, f"{obj['kind']} {path}"
    assert checked == set(DEFAULTED)


def test_two_renders_of_the_chart_are_identical() -> None:
    first, second = (helm("template", "halcyon", str(CHART), values=laid_over(LOCAL, ALL)) for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout


@pytest.mark.parametrize("end", ["", "-halcyon"])
def test_long_names_of_releases_that_begin_alike_stay_apart(end: str) -> None:
    """Two Applications that render the same object undo each other's syncs."""
    begin = "recommendations-of-the-shop-in-production-"
    releases = [render(LITTLE, release=f"{begin}{zone}{end}") for zone in ("a", "b")]
    first, second = ({(o["kind"], o["metadata"]["name"]) for o in objects} for objects in releases)
    assert not first & second
