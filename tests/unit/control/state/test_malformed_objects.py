"""One object of any shape: it ends nothing, hides no other, is said once and counted, and can be put right or deleted."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from typing_extensions import override

from halcyon.api.conditions import Reason
from halcyon.api.schema.structural_schema import JsonSchema, schema
from halcyon.api.spec import Spec
from halcyon.api.status import Status
from halcyon.api.stored.shape import fitted
from halcyon.control.acceptance.accepted_specs import AcceptedSpecs
from halcyon.control.autoscaling.limits.gpu_budget import GpuBudget
from halcyon.control.autoscaling.model_signals import ModelSignals
from halcyon.control.autoscaling.pod_scraper import PodScraper
from halcyon.control.desired import plan
from halcyon.control.objects import pods
from halcyon.control.reconcile.gpu_reservations import GpuReservations
from halcyon.control.reporting.gpu_costs import GpuCosts
from halcyon.control.reporting.model_metrics import ModelMetrics
from halcyon.control.reporting.recent_events import RecentEvents
from halcyon.control.reporting.start_time_metrics import StartTimes
from halcyon.control.state.cluster_state import MALFORMED, ClusterState, _project_resource
from halcyon.dashboard.history import ChartHistory
from halcyon.dashboard.model_row import TableRow, row
from halcyon.dashboard.model_table import Fleet, TableQuery
from halcyon.dashboard.ports import UNKNOWN, Name
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.informers import malformed_objects
from halcyon.kube.informers.informer import Informer
from halcyon.kube.informers.malformed_objects import Malformed
from halcyon.kube.kinds import Key, Kind
from halcyon.render import names
from halcyon.signals.observation_store import ObservationStore
from halcyon_cli.output import model_rows as cli_fleet
from tests.clocks import DrivenClock
from tests.unit.control.autoscalers import autoscaler, served_metrics
from tests.unit.control.leadership import FixedLeadership
from tests.unit.control.scope_builders import PVC, applied_children, resource, scope_of
from tests.unit.kube.memory_kube import MemoryKube

WEIGHT_BYTES = 230_000
"""Each place of an object takes each shape: four seconds of tests."""
GOOD = Key("team", "good")
ODD = Key("team", "digits")
SHAPES: tuple[Any, ...] = ("x", 1, [], {}, None, True, [None], {"x": "y"})
Path = tuple[str | int, ...]


def sample(of: JsonSchema) -> Any:
    """A value that has every field of a schema, each of its type."""
    match of["type"]:
        case "object" if "properties" in of:
            return {name: sample(field_schema) for name, field_schema in of["properties"].items()}
        case "object":
            return {"a": sample(of["additionalProperties"])}
        case "array":
            return [sample(of["items"])]
        case "string":
            return of.get("enum", ["1"])[0]
    return True if of["type"] == "boolean" else of.get("minimum", 1)


def _full_resource() -> Object:
    meta = {
        "labels": {"a": "b"},
        "annotations": {"a": "b"},
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [{"kind": "A", "name": "a", "uid": "u", "apiVersion": "v1", "controller": True}],
        "managedFields": [{"manager": "m", "time": "t", "fieldsV1": {"f:spec": {"f:replicas": {}}}}],
        "generation": 1,
    }
    full = resource(sample(schema(Spec)), status=sample(schema(Status)))
    full["metadata"] |= meta | {"resourceVersion": "1"}
    return full


FULL = _full_resource()
"""A ModelDeployment with all that there can be in one."""


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every node below an object."""
    for key, below in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(below, (*path, key))


def copied(obj: Any) -> Any:
    """The same JSON: thirty times as quick as deepcopy, and it is done thousands of times."""
    return orjson.loads(orjson.dumps(obj))


def put(obj: Object, path: Path, value: Any) -> Object:
    changed: Any = copied(obj)
    part = changed
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = copied(value)
    return changed


IDENTITY = {("metadata",), *(("metadata", name) for name in ("namespace", "name", "uid", "resourceVersion"))}
"""What the API server gives every object itself."""
PLACES = [path for path in places(FULL) if path not in IDENTITY]


class Replica:
    """Whatever of an operator walks over all models, on caches that are filled by hand."""

    def __init__(self, run: Callable[[Coroutine[Any, Any, Any]], Any] = asyncio.run) -> None:
        self.run = run
        self.caches = ClusterState(MemoryKube(), enqueue=lambda _: None)
        self.accepted = AcceptedSpecs(self.caches)
        clock = DrivenClock(lambda: 1000.0)
        hub, registry = ObservationStore(), CollectorRegistry()
        leadership = FixedLeadership()
        self.scaler = autoscaler(
            self.caches.client,
            self.caches,
            self.accepted,
            ModelSignals(self.caches, hub, clock),
            clock=clock,
            leadership=leadership,
            budget=GpuBudget(8),
        )
        self.costs = GpuCosts(
            self.caches, self.scaler.signals, self.accepted, lambda _: None, leadership=leadership, clock=clock
        )
        self.metrics = ModelMetrics(
            self.caches,
            self.accepted,
            self.scaler,
            StartTimes(self.caches, registry),
            self.costs,
            leadership=leadership,
            clock=clock,
        )
        self.gpus = GpuReservations(self.caches, self.accepted, lambda _: None, limited=True)
        self.scraping = PodScraper(self.caches, hub, self.accepted, clock)
        self.happened = RecentEvents(clock)
        self.caches.resources.listeners.append(self.happened.changed)
        self.fleet = Fleet(ChartHistory())
        self.version = 1
        self.known: set[bytes] = set()
        for key in (GOOD, ODD):
            self.serve(key)

    def serve(self, key: Key) -> None:
        """A model that was accepted, and its children."""
        model = resource({"scaling": {"maxReplicas": 3}, "replicas": 2})
        model["metadata"]["name"] = key.name
        for (kind, _), child in applied_children(scope_of(resource=model)).items():
            self.take(child, kind)
        self.take(model)

    def is_new(self, obj: Object) -> bool:
        """Whether the cache keeps of an object what it kept of no earlier one, apart from the sentences about its fields."""
        kept = _project_resource(obj)
        kept[MALFORMED] = MALFORMED in kept
        known = orjson.dumps(kept)
        is_new = known not in self.known
        self.known.add(known)
        return is_new

    def take(self, obj: Object, kind: Kind = kinds.MODEL_DEPLOYMENT) -> None:
        """As a watch would, in a new version."""
        self.version += 1
        obj = copied(obj)
        obj["metadata"]["resourceVersion"] = str(self.version)
        (self.caches.resources if kind is kinds.MODEL_DEPLOYMENT else self.caches.children[kind])._take(obj)

    def walk(self) -> tuple[dict[Name, TableRow], list[str]]:
        """All of it once: the dashboard's rows, and the lines of /metrics about the good one."""
        return self.run(self.walk_in_loop())

    async def walk_in_loop(self) -> tuple[dict[Name, TableRow], list[str]]:
        """The same, in a loop that runs already: a start of the loop for each of thousands takes longer than the rest."""
        self.scaler._add_models()
        self.scaler._allocate_budget(1000.0)
        served_metrics(self.scaler).unserved()
        self.scraping._scraped_models()
        self.gpus._shares = None
        self.gpus.gpus(GOOD)
        for key in self.caches.resources.all_keys():
            self.costs.count(key)
        lines = (await self.metrics.page()).splitlines()
        listed = [Name(*key) for key in self.caches.resources.all_keys()]
        source: Any = SimpleNamespace(
            names=lambda: listed,
            version=lambda name: self.caches.resources.version(Key(*name)),
            model=lambda name: self.caches.resources.get(Key(*name)),
            reading=lambda _: UNKNOWN,
            changes=self.version,
        )
        self.fleet.page(TableQuery(), source, namespaces=None, step=0, second=self.version)
        rows = {name: row for name, (_, row) in self.fleet._rows.items()}
        return rows, [line for line in lines if '="good"' in line]


@pytest.fixture(scope="module")
def replica() -> Iterator[Replica]:
    with asyncio.Runner() as loop:  # one for thousands of pages: a new one for each takes longer than the page
        yield Replica(loop.run)


@pytest.mark.parametrize("value", SHAPES, ids=repr)
def test_no_shape_of_any_field_hides_the_other_models(replica: Replica, value: Any) -> None:
    async def walks() -> None:
        good, lines = await replica.walk_in_loop()
        assert lines

        for path in PLACES:
            odd = put(FULL, path, value)
            assert cli_fleet.build_row(odd).name == ODD.name
            if not replica.is_new(odd):
                continue  # all that walks over models reads what the cache keeps, and that was walked over before
            replica.take(odd)
            rows, current_lines = await replica.walk_in_loop()

            assert replica.caches.resources.all_keys() == [GOOD, ODD], path
            assert (rows[Name(*GOOD)], current_lines) == (good[Name(*GOOD)], lines), path
            assert rows[Name(*ODD)].reason != "Unreadable", path
            parts = [part for failed_parts in replica.caches.malformed._logged.values() for part in failed_parts]
            assert set(parts) <= {"fields"}, f"a part fails on {path}: {replica.caches.malformed._logged}"

    replica.run(walks())


@pytest.mark.parametrize("value", SHAPES, ids=repr)
def test_a_field_of_another_type_is_never_accepted(value: Any) -> None:
    malformed = 0
    for path in [path for path in PLACES if path[0] == "spec"]:
        kept = _project_resource(put(FULL, path, value))
        if MALFORMED not in kept:
            continue  # a value of the field's type, or null, which counts as missing
        malformed += 1
        acceptance = plan.make(scope_of(resource=kept)).acceptance

        assert acceptance.accepted is False
        assert kept[MALFORMED][0] in acceptance.message
    # Most fields are strings. Null counts as missing, but as the item of a list.
    assert malformed > (80 if value is None else 150)


def test_an_object_of_the_schema_s_types_is_left_as_it_is() -> None:
    original = FULL

    projected, wrong = fitted(original)

    assert (projected is original, wrong) == (True, ())


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"model": "s3://x"}, 'spec.model is "s3://x": it must be an object, for example {"name": "a"}'),
        (
            {"model": {"source": {"configMap": "models"}}},
            'spec.model.source.configMap is "models": it must be an object, for example {"name": "a"}',
        ),
        ({"model": {"source": PVC}, "replicas": "2"}, 'spec.replicas is "2": it must be a whole number, for example 1'),
        (
            {"model": {"source": PVC}, "replicas": True},
            "spec.replicas is true: it must be a whole number, for example 1",
        ),
        (
            {"model": {"source": PVC}, "scaling": "x"},
            'spec.scaling is "x": it must be an object, for example {"name": "a"}',
        ),
        ({"runtime": {"env": [{"value": "x"}]}}, "spec.runtime.env[0].name is missing"),
    ],
)
def test_a_malformed_field_is_reported_with_value_and_good_example(spec: dict[str, Any], message: str) -> None:
    model = resource() | {"spec": spec}
    kept = _project_resource(model)

    acceptance = plan.make(scope_of(resource=kept)).acceptance

    assert (acceptance.accepted, acceptance.reason, acceptance.message) == (False, Reason.INVALID, message)


@pytest.mark.parametrize("path", [("spec",), ("spec", "model"), ("spec", "unknown"), ("spec", "scaling"), ("status",)])
def test_an_object_nested_beyond_reading_is_still_there(path: Path) -> None:
    deep: Any = "x"
    for _ in range(1000):
        deep = [deep]
    replica = Replica()
    odd = resource()
    part = odd if len(path) == 1 else odd[path[0]]
    part[path[-1]] = deep
    replica.caches.resources._take(odd | {"metadata": odd["metadata"] | {"resourceVersion": "99"}})

    replica.walk()

    assert replica.caches.resources.all_keys() == [GOOD, ODD]
    kept = replica.caches.resources.get(ODD)
    assert kept is not None
    assert plan.make(scope_of(resource=kept)).acceptance.accepted is (path[0] == "status")


def test_an_accepted_spec_keeps_serving_beside_a_field_of_another_type() -> None:
    children = applied_children(scope_of({"replicas": 3}))
    revisions = tuple(filter(None, (plan.revision.read(obj) for obj in children.values())))
    kept = _project_resource(resource({"replicas": 3, "scaling": "x"}))

    planned = plan.make(scope_of(resource=kept, children=children, revisions=revisions))

    assert planned.acceptance.reason is Reason.INVALID
    assert (planned.spec is not None, planned.replicas) == (True, 3)


def test_a_malformed_object_is_reported_once_and_counted_until_corrected(caplog: pytest.LogCaptureFixture) -> None:
    replica = Replica()
    registry = CollectorRegistry()
    registry.register(malformed_objects.MalformedObjectsPage(replica.caches.malformed))

    def counted() -> list[str]:
        return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            replica.take(put(FULL, ("spec", "model"), "s3://x"))
        assert [record.key for record in caplog.records] == ["team/digits"]
        assert 'spec.model is "s3://x"' in caplog.records[0].error
        assert counted() == ['halcyon_malformed_objects{kind="ModelDeployment"} 1.0']

        replica.take(put(FULL, ("spec", "model"), "s3://y"))
        assert len(caplog.records) == 2

    replica.take(FULL)
    assert counted() == []


def test_a_malformed_model_can_be_deleted() -> None:
    replica = Replica()
    replica.take(put(FULL, ("spec", "model"), "s3://x"))

    replica.caches.resources._drop(ODD)

    assert replica.caches.resources.all_keys() == [GOOD]
    assert replica.caches.malformed.counts() == {}


class Listed(MemoryKube):
    """Lists these objects; its watch brings those, and ends."""

    def __init__(self, listed: list[Object], *events: tuple[str, Object]) -> None:
        super().__init__()
        self.listed, self.events = listed, events

    @override
    async def list(self, kind: Kind, **_: Any) -> tuple[list[Object], str]:
        return copy.deepcopy(self.listed), "9"

    @override
    async def watch(self, kind: Kind, **_: Any) -> Any:
        for event in copy.deepcopy(self.events):
            yield event
        await asyncio.Event().wait()


def pod(name: str, version: int, **fields: Any) -> Object:
    labels = {names.OWNER_LABEL: "digits", names.COMPONENT_LABEL: names.SERVER}
    meta = {"namespace": "team", "name": name, "uid": name, "resourceVersion": str(version), "labels": labels}
    return {"metadata": meta, "status": {"phase": "Running"}} | fields


async def ran(informer: Informer) -> None:
    """Let it list, and take what its watch brings."""
    task = asyncio.create_task(informer.run())
    synced = asyncio.create_task(informer.synced.wait())
    await asyncio.wait({task, synced}, return_when=asyncio.FIRST_COMPLETED)
    synced.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done(), task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_unreadable_pod_is_skipped_until_it_is_readable() -> None:
    odd = pod("odd", 2, status={"conditions": ["Ready"]})
    later = ("MODIFIED", pod("odd", 10))
    caches = ClusterState(Listed([odd, pod("good", 3)]), enqueue=lambda _: None)
    await ran(caches.pods)
    assert [cached["metadata"]["name"] for cached in caches.pods.find("team", "digits")] == ["good"]
    assert caches.malformed.counts() == {"Pod": 1}

    caches.pods.client = Listed([odd, pod("good", 3)], later)
    await ran(caches.pods)
    assert [cached["metadata"]["name"] for cached in caches.pods.find("team", "digits")] == ["good", "odd"]
    assert caches.malformed.counts() == {}


async def test_an_object_that_becomes_unreadable_leaves_the_cache_and_the_count() -> None:
    odd = pod("odd", 10, status={"containerStatuses": "x"})
    caches = ClusterState(Listed([pod("odd", 2)], ("MODIFIED", odd)), enqueue=lambda _: None)
    await ran(caches.pods)
    assert (caches.pods.find("team", "digits"), caches.malformed.counts()) == ([], {"Pod": 1})

    caches.pods.client = Listed([])
    await ran(caches.pods)
    assert caches.malformed.counts() == {}


async def test_an_object_without_a_name_ends_no_watch() -> None:
    caches = ClusterState(Listed([{"metadata": "x"}, pod("good", 3)]), enqueue=lambda _: None)

    await ran(caches.pods)

    assert len(caches.pods) == 1


def test_a_listener_that_fails_hides_nothing_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    keys: list[Key] = []

    def fails(*_: Any) -> None:
        raise KeyError("nobody thought of it")

    informer = Informer(MemoryKube(), kinds.POD, listeners=[fails, lambda key, *_: keys.append(key)])
    for version in (2, 3):
        informer._take(pod("odd", version))

    assert keys == [Key("team", "odd")] * 2
    assert len(caplog.records) == 1
    assert informer.malformed.counts() == {"Pod": 1}


def test_words_of_an_index_that_are_none_are_no_reason_to_end() -> None:
    informer = Informer(MemoryKube(), kinds.HPA, index=lambda obj: [obj["spec"]["scaleTargetRef"]])
    informer._take(pod("odd", 2, spec={"scaleTargetRef": {}}))

    assert (len(informer), informer.malformed.counts()) == (0, {"HorizontalPodAutoscaler": 1})


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '"x"', "[1]", "null", '{"model": "x"}', "{"])
def test_an_edited_accepted_spec_ends_nothing(replica: Replica, text: str) -> None:
    maps = replica.caches.children[kinds.CONFIG_MAP]
    kept = copy.deepcopy(maps.get(Key("team", names.balancer("digits"))))
    in_force = replica.accepted.get(ODD)
    assert kept is not None
    assert in_force is not None
    kept["data"]["accepted.json"] = text
    replica.take(kept, kinds.CONFIG_MAP)

    replica.walk()

    assert replica.accepted.get(ODD) == in_force
    assert replica.caches.malformed.counts().keys() <= {"ModelDeployment"}


@pytest.mark.parametrize("message", ["[" * 4096, '{"a":' * 800, "null", "1", '{"reason": [], "message": {}}'])
def test_a_fetchers_last_words_of_any_depth_are_shown_unchanged(message: str) -> None:
    ended = {"name": "fetch", "state": {"terminated": {"exitCode": 1, "reason": "Error", "message": message}}}
    caches = ClusterState(MemoryKube(), enqueue=lambda _: None)
    balancer = pod("odd", 2, status={"phase": "Pending", "initContainerStatuses": [ended]})
    balancer["metadata"]["labels"][names.COMPONENT_LABEL] = names.BALANCER

    caches.pods._take(balancer)

    assert caches.malformed.counts() == {}
    assert pods.failure(caches.pods.find("team", "balancer/digits")) is not None


RECORD: Object = {
    "metadata": {"name": "r"},
    "revision": 1,
    "data": {
        "format": 1,
        "key": "k",
        "template": {},
        "model": "m",
        "overlay": "{}",
        "snapshot": "",
        "startupTimeoutSeconds": 1,
    },
}


@pytest.mark.parametrize("path", list(places({"data": RECORD["data"]})), ids=str)
@pytest.mark.parametrize("value", SHAPES, ids=repr)
def test_a_record_of_any_shape_is_read_or_is_none(path: Path, value: Any) -> None:
    record = plan.revision.read(put(RECORD, path, value))

    assert record is None or isinstance(record.template, dict)


def test_a_failing_row_reports_it_beside_the_others() -> None:
    models = {Name("a", "odd"): {"metadata": {"resourceVersion": "1"}}, Name("a", "good"): FULL}
    fleet = Fleet(ChartHistory())

    source: Any = SimpleNamespace(names=lambda: list(models), version=lambda _: "1", model=models.get, changes=1)
    fleet._refresh(source, 0)

    assert fleet._rows[Name("a", "odd")][1].reason == "Unreadable"
    assert fleet._rows[Name("a", "good")][1] == row(FULL)


def test_failures_in_a_guarded_block_are_noted_except_cancellation() -> None:
    malformed = Malformed()
    with malformed.skipping_errors("Pod", GOOD, "metrics"):
        raise ValueError("x")
    assert malformed.counts() == {"Pod": 1}

    with pytest.raises(asyncio.CancelledError), malformed.skipping_errors("Pod", GOOD, "metrics"):
        raise asyncio.CancelledError
    with malformed.skipping_errors("Pod", GOOD, "metrics"):
        pass
    assert malformed.counts() == {}
