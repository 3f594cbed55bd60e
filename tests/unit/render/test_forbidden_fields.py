"""Random specs through render: no exception, no child that has what it must not, every name valid.

`make properties` draws 10,000 that are valid and 2,000 with mistakes, and leaves the counts in build/security/.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings

from halcyon.api.schema import structural_schema
from halcyon.api.spec import Spec
from halcyon.api.spec.parse import SpecError, parse
from halcyon.control.desired.plan import make
from halcyon.control.state.scope import SourceState
from halcyon.render.metadata import Object
from halcyon.render.site import Subject
from tests import security
from tests.forbidden import forbidden_properties
from tests.strategies import NAMES, broken, documents
from tests.unit.control.scope_builders import resource, scope_of
from tests.unit.render.rendered import SUBJECT, WALLED, children, content_of, find

THOROUGH = settings().max_examples >= 1000
PARTS = 4 if THOROUGH else 1
"""Of the draw: tests of their own, so that both cores have work."""
SPECS = 10_000 // PARTS if THOROUGH else 6
"""At least, of a part."""
DRAWN = settings(max_examples=SPECS // 6 if THOROUGH else 3)
"""Pairs of specs. A spec takes ten times longer to draw than to render, so the parts of each pair are put together in other ways too."""
MISTAKEN = settings(max_examples=2_000 // PARTS if THOROUGH else 5)
"""They take longer to draw than to refuse."""
WAYS = (0b000000, 0b111111, 0b010101, 0b101010, 0b001100, 0b110011, 0b100110, 0b011001)
SECTIONS = ("model", "runtime", "batching", "scaling", "traffic", "rollout")
SCHEMA = structural_schema.schema(Spec)


def wrong(objects: list[Object], name: str) -> list[str]:
    return [violation for obj in objects for violation in forbidden_properties(obj, namespace="team", name=name)]


def complaint(document: dict[str, Any]) -> str:
    try:
        parse("digits", document)
    except SpecError as error:
        return str(error)
    return ""


def keep(key: str, seen: Counter[str]) -> None:
    if THOROUGH:
        security.record(key, seen)


def crossed(first: dict[str, Any], second: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Both, and what is valid of their sections in other ways."""
    for way in WAYS:
        sections = {name: (first if way >> n & 1 else second).get(name) for n, name in enumerate(SECTIONS)}
        mixed = {name: copy.deepcopy(value) for name, value in sections.items() if value is not None} | {
            "replicas": first.get("replicas", 1)
        }
        if way in {0, 0b111111} or not complaint(mixed):
            yield mixed


@pytest.mark.parametrize("part", range(PARTS))
def test_no_child_of_any_spec_has_forbidden_fields(part: int) -> None:
    seen: Counter[str] = Counter(specs=0, children=0, forbidden=0)

    @given(documents(), documents(), NAMES)
    @DRAWN
    def harmless(first: dict[str, Any], second: dict[str, Any], name: str) -> None:
        for document in crossed(first, second):
            spec = parse(name, document)
            planned = make(
                scope_of(document, site=WALLED, source=SourceState(content=content_of(spec)), gateway_api=True)
            )
            objects = children(spec, Subject("team", name, "uid"))
            violations = wrong(objects, name) + wrong([*planned.first, *planned.then], "digits")
            seen.update(specs=1, children=len(objects), forbidden=len(violations))
            assert planned.acceptance.accepted, planned.acceptance.message
            assert violations == []

    harmless()
    assert seen["specs"] >= SPECS
    keep(f"random-specs-{part}", seen)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_spec_with_mistakes_is_refused_in_words_and_makes_nothing(part: int) -> None:
    seen: Counter[str] = Counter(specs=0, refused=0)

    @given(broken(SCHEMA))
    @MISTAKEN
    def refused(document: dict[str, Any]) -> None:
        planned = make(scope_of(resource=resource() | {"spec": copy.deepcopy(document)}, gateway_api=True))
        message = complaint(document)
        seen.update(specs=1, refused=bool(message))
        if message:
            assert not planned.acceptance.accepted
            assert message in planned.acceptance.message
            assert (planned.first, planned.then, planned.delete) == ((), (), ())

    refused()
    keep(f"broken-specs-{part}", seen)


def spoilt(path: str, value: Any) -> list[str]:
    """What is found wrong with a server Deployment of which one thing was changed."""
    spec = parse("digits", {"model": {"source": {"persistentVolumeClaim": {"claimName": "m"}}}})
    deployment = copy.deepcopy(find(children(spec, SUBJECT), "Deployment", "digits-a"))
    assert wrong([deployment], "digits") == []
    part: Any = deployment
    *parents, last = (int(key) if key.isdigit() else key for key in path.split("."))
    for key in parents:
        part = part[key]
    part[last] = value
    return wrong([deployment], "digits")


POD = "spec.template.spec"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.namespace", "kube-system"),
        ("metadata.name", "digits_a"),
        ("metadata.name", "other-a"),
        ("kind", "Pod"),
        ("metadata.labels.team", "a"),
        ("spec.template.metadata.labels.app", "victim"),
        ("spec.template.metadata.annotations", {"sidecar.istio.io/inject": "true"}),
        (f"{POD}.hostNetwork", True),
        (f"{POD}.hostPID", True),
        (f"{POD}.nodeName", "node"),
        (f"{POD}.automountServiceAccountToken", True),
        (f"{POD}.serviceAccountName", "admin"),
        (f"{POD}.volumes.0", {"name": "models", "hostPath": {"path": "/"}}),
        (f"{POD}.volumes.1", {"name": "source", "persistentVolumeClaim": {"claimName": "m"}}),
        (
            f"{POD}.volumes.0",
            {"name": "models", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
        ),
        (f"{POD}.containers.0.securityContext", {"privileged": True}),
        (f"{POD}.containers.0.securityContext.capabilities", {"add": ["SYS_ADMIN"], "drop": ["ALL"]}),
        (f"{POD}.containers.0.securityContext.readOnlyRootFilesystem", False),
        (f"{POD}.initContainers.0.envFrom", [{"secretRef": {"name": "a"}}]),
        (f"{POD}.containers.0.env", [{"name": "LD_PRELOAD", "value": "x"}]),
        (f"{POD}.containers.0.command", ["/bin/sh"]),
        (f"{POD}.containers.0.args", ["--model-control-mode=explicit"]),
        (f"{POD}.securityContext.runAsUser", 0),
        (f"{POD}.securityContext.seccompProfile", {"type": "Unconfined"}),
    ],
)
def test_forbidden_fields_are_found_in_their_places(path: str, value: Any) -> None:
    assert spoilt(path, value) != []
