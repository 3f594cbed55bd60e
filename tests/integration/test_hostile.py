"""The table of hostile inputs (tests/hostile.py) against a real API server and a real operator, with admission on and off: 0 escapes.

With admission off the API server stores any spec under any name, as one did whose CRD is older, or that somebody has bypassed.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from e2e.cluster.cluster import Cluster
from halcyon.api import admission
from halcyon.api.site_policy import SitePolicy
from halcyon.control import kinds
from tests import security
from tests.hostile import POLICY, ROWS, Attempt, Row, spec
from tests.integration.connection import Connection
from tests.integration.hostile_deeds import DEEDS, Scene
from tests.integration.operator_process import crd, running
from tests.integration.operator_space import Space, files
from tests.integration.test_operator_bad_input import set_schema
from tests.integration.test_site_policy import KINDS
from tests.integration.waiting import until

pytestmark = pytest.mark.more

ROOT: Final = Path(__file__).parents[2]
REFUSED: Final = {400, 403, 422}
Tried = dict[tuple[str, int], list[str]]
"""What has escaped, by the phase and the row's number."""


@pytest.fixture(scope="module")
def tried(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tried]:
    """Every row, in both phases: at once, for the operator needs no more time for all than for one."""
    directory = tmp_path_factory.mktemp("hostile")
    policy = directory / "policy.json"
    site = SitePolicy.model_validate(POLICY)
    policy.write_text(site.model_dump_json(by_alias=True, exclude_none=True))
    found: Tried = {}
    with (
        running(cluster, directory, more=(f"--site-policy-file={policy}",)) as operator,
        closing(Connection(cluster)) as api,
    ):
        for phase, prepared in (("on", admitting), ("off", storing)):
            space = Space(cluster.api, f"hostile-{phase}-{uuid.uuid4().hex[:8]}")
            scene = Scene(space, operator, api)
            scene.other(space.namespace)
            space.apply(files())
            with prepared(cluster, scene, site):
                found |= {(phase, number): escaped for number, escaped in attempted(scene, phase).items()}
                for row in ROWS:
                    found[phase, row.number] += missing(row) + done(row, scene)
                remove(scene)
        yield found


@contextmanager
def admitting(_: Cluster, scene: Scene, site: SitePolicy) -> Iterator[None]:
    """The site's policy is held by the API server."""
    made = admission.policies(site, "halcyon-hostile", namespaces=(scene.space.namespace,))
    for obj in made:
        assert scene.api.apply(KINDS[obj["kind"]], obj, fieldValidation="Strict").status == 201
    too_many = spec() | {"replicas": 1000}
    try:
        until(
            lambda: scene.api.try_spec(too_many, namespace=scene.space.namespace).status,
            lambda status: status == 403,
            what="the policy is held",
        )
        yield
    finally:
        for obj in reversed(made):
            scene.api.send("DELETE", KINDS[obj["kind"]].path(name=obj["metadata"]["name"]))


@contextmanager
def storing(cluster: Cluster, scene: Scene, _: SitePolicy) -> Iterator[None]:
    """The API server knows no rule of the CRD."""
    schema = crd()["spec"]["versions"][0]["schema"]
    whole = schema["openAPIV3Schema"]
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    loose = {"type": "object", "properties": {"spec": anything, "status": whole["properties"]["status"]}}
    set_schema(cluster, {"openAPIV3Schema": loose})
    try:
        until(lambda: scene.api.try_spec({}).status, lambda s: s == 201, what="any spec is stored")
        yield
    finally:
        set_schema(cluster, schema)
        until(lambda: scene.api.try_spec({}).status, lambda s: s == 422, what="the rules are back")


def attempted(scene: Scene, phase: str) -> dict[int, list[str]]:
    """What has escaped of the rows' specs."""
    found: dict[int, list[str]] = {row.number: [] for row in ROWS}
    stored: dict[str, tuple[Row, Attempt]] = {}
    path = kinds.MODEL_DEPLOYMENT.path(scene.space.namespace)
    for row in ROWS:
        for number, attempt in enumerate(row.attempts):
            name = attempt.name or f"r{row.number}-{number}"
            validation = {"fieldValidation": "Strict" if phase == "on" else "Ignore"}
            answer = scene.api.send("POST", path, scene.model(name, attempt.spec), query=validation)
            if phase == "off" or not attempt.on:
                stored[name] = (row, attempt)
                found[row.number] += [] if answer.status == 201 else [f"{name} can't be tried: {answer.message[:300]}"]
            elif answer.status not in REFUSED:
                found[row.number].append(f"{name} was let in: {answer.status}")
            elif attempt.on not in answer.message:
                found[row.number].append(f"{name} was refused, but for: {answer.message[:500]}")
    for name, (row, attempt) in stored.items():
        message = scene.space.wait_condition("Accepted", "False", name=name, limit_s=30)
        found[row.number] += [] if attempt.off in message else [f"{name} isn't accepted, but for: {message}"]
    owners = {o["metadata"]["labels"]["serving.halcyon.dev/model-deployment"] for o in scene.space.children().values()}
    for name, (row, _) in stored.items():
        found[row.number] += [f"{name} has children"] if name in owners else []
    return found


def done(row: Row, scene: Scene) -> list[str]:
    """What has escaped of the row's deed; one that doesn't come to its end hides no other row."""
    try:
        return DEEDS[row.deed](scene) if row.deed else []
    except AssertionError as error:
        return [f"{row.deed}: {error}"]


def missing(row: Row) -> list[str]:
    """Tests that the row counts on and that aren't there."""
    lost = []
    for beside in row.beside:
        file, _, name = beside.partition("::")
        text = (ROOT / file).read_text() if (ROOT / file).exists() else ""
        lost += [] if re.search(rf"^(async )?def {name}\(", text, re.MULTILINE) else [f"there is no test {beside}"]
    return lost


def remove(scene: Scene) -> None:
    """Every ModelDeployment of the phase, also those of names that no rule allows."""
    api, path = scene.space.api, kinds.MODEL_DEPLOYMENT.path(scene.space.namespace)
    assert api.call("DELETE", path).status == 200
    until(lambda: left(scene.space), lambda names: not names, what="all are gone", limit_s=30)
    scene.space.end()


def left(space: Space) -> list[Any]:
    return [o["metadata"]["name"] for o in space.every(kinds.MODEL_DEPLOYMENT)]


def test_the_table_has_seventy_rows_and_each_tries_something() -> None:
    assert [row.number for row in ROWS] == list(range(1, 71))
    assert all(row.attempts or row.deed for row in ROWS)
    assert {row.deed for row in ROWS if row.deed} == DEEDS.keys()


@pytest.mark.parametrize("phase", ["on", "off"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.number}-{row.tried}")
def test_nothing_escapes(tried: Tried, row: Row, phase: str) -> None:
    assert tried[phase, row.number] == []


def test_seventy_times_two_were_tried_and_none_escaped(tried: Tried) -> None:
    counts = {
        "rows_admission_on": sum(phase == "on" for phase, _ in tried),
        "rows_admission_off": sum(phase == "off" for phase, _ in tried),
        "specs": sum(len(row.attempts) for row in ROWS) * 2,
        "deeds": len(DEEDS) * 2,
        "escapes": sum(map(len, tried.values())),
    }
    security.record("hostile-inputs", counts)
    assert counts == {**counts, "rows_admission_on": 70, "rows_admission_off": 70, "escapes": 0}
