"""The table of hostile inputs (tests/hostile.py) on a real API server beside a real operator, with admission on and off: 0 escapes.

    phase   the API server                                         so that
    off     stores any spec under any name, as one does that has   the operator alone holds every row
            an older CRD, or that somebody has gone past
    on      has the CRD's rules and the site's policies            it refuses what it can see, and the operator the rest

Each spec is tried twice in each phase: as a new model, of which no object may come to be, and as a change of one that is served, whose
objects must stay as they are. What takes more than a spec is a deed, in a namespace of its own; all of them are under way at once.
Pods here are KWOK's and run nothing: what of a row takes one stands in `Row.beside`, with the reason. The counts are kept in
build/security/hostile.json.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Final

import pytest

from e2e.cluster.cluster import Cluster
from generators import admission_policies
from halcyon.api.policy.site_policy import SitePolicy
from halcyon.kube import kinds
from tests import security
from tests.hostile import POLICY, ROWS, Attempt, Row, spec
from tests.integration.api.test_site_policy import KINDS
from tests.integration.connection import Answer, Connection
from tests.integration.hostile_deeds import DEEDS
from tests.integration.hostile_scene import HostileNamespace, Kept, everything, model, objects_of, prepared
from tests.integration.operator_process import CRD_PATH, Operator, crd, running
from tests.integration.operator_space import Object, Space
from tests.integration.waiting import until

pytestmark = pytest.mark.more

POLICY_OF_THE_SITE: Final = SitePolicy.model_validate(POLICY)
REFUSED: Final = {400, 403, 422}
SERVED: Final = 6
"""Models whose specs are changed: as many rows are tried on them at once."""
AT_ONCE: Final = SERVED + 4
"""Threads."""


@pytest.fixture(scope="module")
def figures() -> Iterator[Counter[str]]:
    """What was tried in this run, and what has become of it."""
    counts: Counter[str] = Counter(rows=len(ROWS), rows_also_elsewhere=sum(bool(row.beside) for row in ROWS))
    yield counts
    counts["escapes"] = sum(counts[f"{phase}_rows"] - counts[f"{phase}_rows_held"] for phase in ("off", "on"))
    security.record("hostile", counts)


@pytest.fixture(scope="module")
def operator(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """An operator with the site's policy. It begins while the API server knows no rule, and so sees whole what is stored then."""
    directory = tmp_path_factory.mktemp("hostile")
    policy = directory / "policy.json"
    policy.write_text(POLICY_OF_THE_SITE.model_dump_json(by_alias=True, exclude_none=True))
    cluster.api.create(CRD_PATH.rpartition("/")[0], crd())
    try:
        set_schema(cluster, _anything())
        with running(cluster, directory, more=(f"--site-policy-file={policy}",)) as started:
            yield started
    finally:
        set_schema(cluster, crd()["spec"]["versions"][0]["schema"])


def _anything() -> Object:
    full_schema = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "openAPIV3Schema": {
            "type": "object",
            "properties": {"spec": free, "status": full_schema["properties"]["status"]},
        }
    }


def set_schema(cluster: Cluster, schema: Object) -> None:
    """Give the CRD this schema, and wait until the API server goes by it."""
    change = [{"op": "replace", "path": "/spec/versions/0/schema", "value": schema}]
    answer = cluster.api.call("PATCH", CRD_PATH, change, content_type="application/json-patch+json")
    assert answer.status == 200, answer
    expected = 422 if "properties" in schema["openAPIV3Schema"]["properties"]["spec"] else 201
    with closing(Connection(cluster)) as api:
        until(lambda: api.try_spec({}), lambda answer: answer.status == expected, goal=f"an empty spec is a {expected}")


@dataclass
class Phase:
    """All rows under way, with admission on or off."""

    name: str
    operator: Operator
    cluster: Cluster
    api: Kept
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:6])
    created: dict[str, Answer] = field(default_factory=dict)
    """What the API server said to new models, by their names."""
    changed: dict[int, Future[list[Answer]]] = field(default_factory=dict)
    """And to changes, by the row's number: one for each attempt. It fails where one escaped."""
    done: dict[int, Future[list[str]]] = field(default_factory=dict)
    """What has escaped of deeds."""
    served: SimpleQueue[str] = field(default_factory=SimpleQueue)
    """Models that nobody changes at the moment."""

    def namespace(self, row: Row | None = None) -> str:
        """Of a row's deed; without one, that of the specs."""
        return f"hostile-{self.name}-{self.run}" + (f"-{row.number}" if row else "")

    @property
    def namespaces(self) -> tuple[str, ...]:
        """All that models of the table are in."""
        return (self.namespace(), *(self.namespace(row) for row in ROWS if row.deed))

    @property
    def space(self) -> Space:
        """Where the specs are tried."""
        return Space(self.api, self.namespace())

    def refuses(self, attempt: Attempt) -> bool:
        """Whether it is the API server that must refuse this."""
        return bool(attempt.on) if self.name == "on" else not attempt.storable

    def begin(self, pool: ThreadPoolExecutor) -> None:
        """Start all of it."""
        for row in ROWS:
            if row.deed:
                scene = HostileNamespace(Space(self.api, self.namespace(row)), self.operator, self.cluster)
                self.done[row.number] = pool.submit(DEEDS[row.deed], scene)
        with closing(Connection(self.cluster)) as api:
            for row in ROWS:
                for name, attempt in attempts(row):
                    self.created[name] = self.send(api, "POST", "", model(name, attempt.spec))
            for number in range(SERVED):
                assert self.send(api, "POST", "", model(f"served-{number}", spec())).status == 201
        for number in range(SERVED):
            self.space.wait_settled(f"served-{number}", limit_s=30)
            self.served.put(f"served-{number}")
        self.changed = {row.number: pool.submit(self.change, row) for row in ROWS if row.attempts}

    def send(self, api: Connection, method: str, name: str, body: Any) -> Answer:
        """A write of a spec, under strict validation where there is any."""
        query = {"fieldValidation": "Strict" if self.name == "on" else "Ignore"}
        content = "application/json" if method == "POST" else "application/json-patch+json"
        path = kinds.MODEL_DEPLOYMENT.path(self.namespace(), name)
        return api.send(method, path, body, query=query, content=content)

    def change(self, row: Row) -> list[Answer]:
        """Give each spec of a row to a model that is served.

        Raises:
            AssertionError: the operator has taken one, or has done anything by it.
        """
        name = self.served.get()
        try:
            before = self.look(name)
            with closing(Connection(self.cluster)) as api:
                answers = [self.changed_to(api, name, attempt) for _, attempt in attempts(row) if not attempt.name]
            assert self.look(name) == before, "what is served has changed"
            return answers
        finally:
            self.served.put(name)

    def changed_to(self, api: Connection, name: str, attempt: Attempt) -> Answer:
        """Give one spec to a model, and hear what the operator says where it was stored."""
        answer = self.send(api, "PATCH", name, [{"op": "replace", "path": "/spec", "value": attempt.spec}])
        if answer.status == 200:
            generation = answer.body["metadata"]["generation"]
            until(
                lambda: self.space.status(name).get("observedGeneration"),
                lambda seen: seen == generation,
                goal=f"the operator has looked at {attempt.off}",
            )
            verdict, _, message = self.space.condition("Accepted", name)
            assert (verdict, attempt.off in message) == ("False", True), message
            # A status holds no more of a message than so much.
            assert message.endswith("; the last accepted spec stays in effect")
        return answer

    def look(self, name: str) -> dict[tuple[str, str], Object]:
        """What a model is served by, as it was asked for."""
        return {
            (o["kind"], o["metadata"]["name"]): requested_object(o) for o in objects_of(name, everything(self.space))
        }


def requested_object(obj: Object) -> Object:
    """Without what others write: counts of pods, and who wrote what when."""
    meta = {k: v for k, v in obj["metadata"].items() if k not in {"resourceVersion", "managedFields", "generation"}}
    return {k: v for k, v in obj.items() if k != "status"} | {"metadata": meta}


def attempts(row: Row) -> list[tuple[str, Attempt]]:
    """Each with the name of its model."""
    return [(attempt.name or f"r{row.number}-{n}", attempt) for n, attempt in enumerate(row.attempts)]


@pytest.fixture(scope="module", params=["off", "on"])
def phase(cluster: Cluster, operator: Operator, request: pytest.FixtureRequest) -> Iterator[Phase]:
    """The phases, one after the other."""
    with closing(Kept(cluster.api.identity, cluster)) as api:
        started = Phase(request.param, operator, cluster, api)
        try:
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(lambda namespace: prepared(api, namespace), started.namespaces))
                with admitting(started):
                    started.begin(pool)
                    yield started
        finally:
            remove(started)


@contextmanager
def admitting(phase: Phase) -> Iterator[None]:
    """The API server has the rules of the CRD and holds the site's policy, where admission is on."""
    if phase.name == "off":
        yield
        return
    set_schema(phase.cluster, crd()["spec"]["versions"][0]["schema"])
    objects = admission_policies.policies(POLICY_OF_THE_SITE, "halcyon-hostile", namespaces=phase.namespaces)
    too_many = spec() | {"replicas": 1000}
    with closing(Connection(phase.cluster)) as api:
        try:
            for obj in objects:
                assert api.apply(KINDS[obj["kind"]], obj, fieldValidation="Strict").status == 201
            for namespace in phase.namespaces:
                until(
                    lambda namespace=namespace: api.try_spec(too_many, namespace=namespace).status,  # type: ignore[misc]  # a default
                    lambda status: status == 403,
                    goal=f"the policy is held in {namespace}",
                )
            yield
        finally:
            for obj in reversed(objects):
                api.send("DELETE", KINDS[obj["kind"]].path(name=obj["metadata"]["name"]))


def remove(phase: Phase) -> None:
    """Every model of the phase, while the API server takes its name; the namespaces go behind."""
    spaces = [Space(phase.api, namespace) for namespace in phase.namespaces]
    for space in spaces:
        assert space.api.call("DELETE", kinds.MODEL_DEPLOYMENT.path(space.namespace)).status == 200
    for space in spaces:
        until(lambda space=space: space.every(kinds.MODEL_DEPLOYMENT), lambda left: not left, goal="all are gone")  # type: ignore[misc]  # a default
        space.end()


def test_every_deed_of_the_table_is_there() -> None:
    assert {row.deed for row in ROWS if row.deed} == DEEDS.keys()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.number}-{row.tried}")
def test_no_hostile_spec_escapes(phase: Phase, row: Row, figures: Counter[str]) -> None:
    figures[f"{phase.name}_rows"] += 1
    for name, attempt in attempts(row):
        refused_or_stored(phase, phase.created[name], attempt)
        if phase.created[name].status == 201:
            message = phase.space.wait_condition("Accepted", "False", name=name, limit_s=30)
            assert attempt.off in message, f"{name} isn't accepted, but for: {message}"
        figures[outcome(phase, phase.created[name])] += 1
    objects = everything(phase.space) if row.attempts else []
    assert [o["metadata"]["name"] for name, _ in attempts(row) for o in objects_of(name, objects)] == []
    if row.attempts:
        same = [attempt for _, attempt in attempts(row) if not attempt.name]
        for attempt, answer in zip(same, phase.changed[row.number].result(), strict=True):
            refused_or_stored(phase, answer, attempt)
            figures[outcome(phase, answer)] += 1
    if row.deed:
        assert phase.done[row.number].result() == []
        figures[f"{phase.name}_deeds"] += 1
    figures[f"{phase.name}_rows_held"] += 1


def refused_or_stored(phase: Phase, answer: Answer, attempt: Attempt) -> None:
    """The API server has done its part."""
    if not phase.refuses(attempt):
        assert answer.status in {200, 201}, f"it can't be tried: {answer.status} {answer.message[:500]}"
        return
    assert answer.status in REFUSED, f"it was let in: {answer.status}, not refused as {attempt.on}"
    assert phase.name == "off" or attempt.on in answer.message, f"it was refused, but for: {answer.message[:1000]}"


def outcome(phase: Phase, answer: Answer) -> str:
    """Who has held a spec: the name of a figure."""
    holder = {400: "schema", 422: "schema", 403: "policy"}.get(answer.status, "operator")
    return f"{phase.name}_specs_held_by_{holder}"


def test_objects_are_made_for_valid_models_alone(phase: Phase) -> None:
    """Of those all is found, so that what the looks of the test above don't find isn't there."""
    objects = everything(phase.space)
    right = [objects_of(f"served-{number}", objects) for number in range(SERVED)]
    for served in right:
        assert {"Deployment", "Service", "ConfigMap", "ServiceAccount", "Role", "RoleBinding"} <= {
            o["kind"] for o in served
        }
    rest = [(o["kind"], o["metadata"]["name"]) for o in objects if not any(o in served for served in right)]
    assert set(rest) <= {("ConfigMap", "files"), ("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}
