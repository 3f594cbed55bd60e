"""Clusters of public reports (docs/quality/field-reports.md), each test with its number there, with the rendered objects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from halcyon.api.spec.parse import SpecError, parse
from halcyon.render import names
from tests.unit.api.spec_cases import PVC
from tests.unit.render import rendered
from tests.unit.render.pod_security import violations

SPECS: list[dict[str, Any]] = [
    {},
    {"traffic": {"mode": "Direct"}},
    {"traffic": {"service": {"type": "LoadBalancer"}}},
    {"traffic": {"tls": {"secretName": "certificate"}}},
    {"scaling": {"minReplicas": 0, "maxReplicas": 4}},
]


def children(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return rendered.children(parse("digits", {"model": {"source": PVC}, **spec}))


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("text", ["cluster.local", "ipFamil", "finalizers"], ids=["237", "239", "246"])
def test_237_239_246_objects_name_no_domain_family_or_finalizer(text: str, spec: dict[str, Any]) -> None:
    assert text not in json.dumps(children(spec))


def test_241_a_minimum_above_the_maximum_is_rejected_with_both() -> None:
    with pytest.raises(SpecError) as error:
        children({"scaling": {"minReplicas": 50, "maxReplicas": 10}})
    assert "spec.scaling.minReplicas is 50" in str(error.value)
    assert "spec.scaling.maxReplicas, which is 10" in str(error.value)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_244_the_selector_of_a_model_selects_its_servers_alone(spec: dict[str, Any]) -> None:
    selector = dict(pair.split("=") for pair in names.selector_text("digits").split(","))
    labels = [pod["metadata"]["labels"] for child in children(spec) if (pod := child.get("spec", {}).get("template"))]
    selected = [each for each in labels if selector.items() <= each.items()]
    assert [each[names.COMPONENT_LABEL] for each in selected] == [names.SERVER]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_249_250_all_containers_are_restricted_with_a_read_only_root(spec: dict[str, Any]) -> None:
    for child in children(spec):
        if template := child.get("spec", {}).get("template"):
            assert violations(template) == []
            pod = template["spec"]
            containers = [*pod.get("initContainers", ()), *pod["containers"]]
            assert all(container["securityContext"]["readOnlyRootFilesystem"] for container in containers)
