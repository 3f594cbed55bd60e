from types import SimpleNamespace
from typing import Any

import pytest

from halcyon.dashboard.client_latency import Quantiles
from halcyon.dashboard.history import NO_LOAD, ChartHistory, CurrentLoad, ReplicaCounts
from halcyon.dashboard.model_row import problems, row
from halcyon.dashboard.model_table import Fleet, InvalidQuery, TableQuery
from halcyon.dashboard.ports import UNKNOWN, ModelNumbers, Name, Object
from tests.unit.dashboard.objects import READY, condition, model, name


class Site:
    """A fleet over these objects."""

    def __init__(self, *models: Object) -> None:
        self.models = {Name(m["metadata"]["namespace"], m["metadata"]["name"]): m for m in models}
        self.history = ChartHistory()
        self.fleet = Fleet(self.history)
        self.version = 0
        self.read: list[Name] = []
        self.unpacked: list[Name] = []
        self.now: dict[Name, ModelNumbers] = {}

    def page(self, namespaces: set[str] | None = None, **query: str) -> dict[str, Any]:
        self.version += 1
        return self.same_second(namespaces, **query)

    def same_second(self, namespaces: set[str] | None = None, **query: str) -> dict[str, Any]:
        source: Any = SimpleNamespace(
            names=lambda: list(self.models),
            version=lambda name: self.models[name]["metadata"]["resourceVersion"],
            model=self._object,
            reading=self._reading,
            changes=self.version,
        )
        allowed = None if namespaces is None else frozenset(namespaces)
        return self.fleet.page(TableQuery.of(query), source, namespaces=allowed, step=0, second=self.version)

    def _object(self, name: Name) -> Object | None:
        self.unpacked.append(name)
        return self.models.get(name)

    def _reading(self, name: Name) -> ModelNumbers:
        self.read.append(name)
        return self.now.get(name, UNKNOWN)

    def names(self, **query: str) -> list[str]:
        return [row["name"] for row in self.page(**query)["rows"]]


@pytest.mark.parametrize(
    ("conditions", "spec", "scaling", "state"),
    [
        ((), {}, {}, "unknown"),
        ((condition("Ready", "Unknown"),), {}, {}, "unknown"),
        ((condition("Ready", "False"),), {}, {}, "unready"),
        ((condition("Ready", "False"), condition("Reconciling", "True")), {}, {}, "progressing"),
        ((READY, condition("Stalled", "True"), condition("Reconciling", "True")), {}, {}, "stalled"),
        ((READY,), {"replicas": 0}, {}, "zero"),
        ((READY,), {}, {"limitedBy": ["hold", "max"]}, "limited"),
        ((READY,), {}, {"limitedBy": ["hold"]}, "ready"),
        ((READY,), {}, {}, "ready"),
    ],
)
def test_a_state_follows_from_conditions_spec_and_scaling(
    conditions: tuple[Any, ...], spec: dict[str, Any], scaling: dict[str, Any], state: str
) -> None:
    assert row(model(conditions=conditions, spec=spec, status={"scaling": scaling})).state == state


@pytest.mark.parametrize(
    ("history", "scaling", "state"),
    [
        ([], {}, "progressing"),
        (["Superseded"], {}, "progressing"),
        (["Served"], {}, "unready"),
        (["Superseded", "Served"], {"minReplicas": 1}, "unready"),
        (["Served"], {"minReplicas": 0}, "progressing"),
    ],
)
def test_models_without_ready_servers_are_in_progress_only_at_a_start(
    history: list[str], scaling: dict[str, Any], state: str
) -> None:
    """The operator reports Reconciling also for a model that has lost all its servers or balancers."""
    down = (condition("Ready", "False", "NoServersReady"), condition("Reconciling", "True", "Progressing"))
    rollout = {"history": [{"revision": "a", "result": result} for result in history]}
    shown = row(model(conditions=down, spec={"scaling": scaling}, status={"rollout": rollout}))
    assert shown.state == state
    assert problems(shown, NO_LOAD) == (["unready"] if state == "unready" else [])


def test_a_row_shows_what_the_object_has() -> None:
    shown = row(
        model(
            spec={"replicas": 3, "scaling": {"maxReplicas": 8}, "runtime": {"gpu": {"count": 2}}},
            status={
                "replicas": 3,
                "readyReplicas": 2,
                "pods": {"total": 3, "ready": 2},
                "summary": {"state": "Ready", "queue": "12/48", "gpu": "71", "batch": "6.4"},
                "scaling": {"desired": 4, "policy": "Planner", "why": "because"},
                "cost": {"gpus": 4, "perHour": "10.00", "currency": "EUR"},
            },
        )
    )
    assert (shown.gpus, shown.cost, shown.currency) == (4, 10.0, "EUR")
    assert (shown.ready, shown.replicas, shown.desired, shown.min, shown.max) == (2, 3, 4, 1, 8)
    assert (shown.queue, shown.gpu, shown.batch) == (12.0, 71.0, 6.4)
    assert (shown.queue_target, shown.policy, shown.why) == (48.0, "Planner", "because")


@pytest.mark.parametrize(
    ("conditions", "spec", "replicas"),
    [
        ((READY,), {"replicas": 9}, 9),
        ((READY,), {"scaling": {"minReplicas": 2, "maxReplicas": 4, "mode": "Paused"}}, 2),
        ((READY,), {"replicas": 9, "scaling": {"maxReplicas": 4}}, 4),
        ((READY,), {"scaling": {"minReplicas": 3, "maxReplicas": 4, "schedules": [{}, {"maxReplicas": 2}]}}, 2),
        ((READY,), {"replicas": 0, "scaling": {"minReplicas": 0, "maxReplicas": 4}}, 0),
        ((READY, condition("Accepted", "False")), {"replicas": 9, "scaling": {"maxReplicas": 4}}, 9),
    ],
)
def test_replicas_are_those_in_force(conditions: tuple[Any, ...], spec: dict[str, Any], replicas: int) -> None:
    shown = row(model(conditions=conditions, spec=spec))
    assert (shown.replicas, shown.state == "zero") == (replicas, replicas == 0)


def test_replicas_of_an_external_hpa_are_the_pods() -> None:
    external = condition("AutoscalerConflict", "True")
    assert row(model(conditions=(READY, external), status={"replicas": 5})).replicas == 5
    assert row(model(status={"replicas": 5})).replicas == 1


def test_a_model_without_a_status_has_a_row_without_guesses() -> None:
    bare = model()
    del bare["status"]
    shown = row(bare)
    assert (shown.state, shown.ready, shown.desired, shown.max, shown.queue, shown.queue_target) == (
        "unknown",
        None,
        None,
        None,
        None,
        None,
    )


def test_costs_are_added_up_where_they_are_known() -> None:
    priced = {"cost": {"gpus": 1, "perHour": "2.50", "currency": "EUR"}}
    site = Site(model(1), model(2, status=priced), model(3, status=priced))
    page = site.page(sort="cost", order="descending")
    assert (page["cost"], page["currency"]) == (5.0, "EUR")
    assert [row["cost"] for row in page["rows"]] == [2.5, 2.5, None]
    assert Site(model(1)).page()["cost"] is None


def test_ages_are_sorted_as_their_column_shows_them() -> None:
    young, old, broken = model(1), model(2), model(3)
    young["metadata"]["creationTimestamp"], old["metadata"]["creationTimestamp"] = (
        "2026-05-01T00:00:00Z",
        "2026-01-01T00:00:00Z",
    )
    broken["metadata"]["creationTimestamp"] = ""
    site = Site(young, old, broken)
    names = [m["metadata"]["name"] for m in (old, young, broken)]
    assert site.names(sort="age", order="descending") == names
    assert site.names(sort="age") == [names[1], names[0], names[2]]


def test_pages_are_cut_out_of_what_matches() -> None:
    site = Site(*(model(n) for n in range(250)))
    page = site.page(sort="name", offset="100", limit="100")
    assert [row["name"] for row in page["rows"]] == [f"model-{n:04}" for n in range(100, 200)]
    assert (page["total"], page["matched"], page["offset"]) == (250, 250, 100)
    assert len(site.read) == 100  # what is read now is read for the rows in sight only
    assert site.page(offset="240", limit="100")["rows"][-1]["name"] == "model-0249"
    assert site.page(offset="900")["rows"] == []


def test_every_word_of_the_filter_must_be_there() -> None:
    site = Site(model(1), model(2, "team-b", status={"summary": {"state": "LoadFailed"}}), model(3, "team-b"))
    assert site.names(text="team-b", sort="name") == ["model-0002", "model-0003"]
    assert site.names(text="TEAM-B loadf") == ["model-0002"]
    assert site.names(text="team-a loadf") == []


def test_a_state_can_be_filtered_and_all_are_counted() -> None:
    site = Site(model(1), model(2, conditions=(condition("Ready", "False"),)), model(3))
    page = site.page(state="unready")
    assert [row["name"] for row in page["rows"]] == ["model-0002"]
    assert (page["counts"]["ready"], page["counts"]["unready"]) == (2, 1)


def test_the_worst_come_first_by_default() -> None:
    stalled = model(9, conditions=(condition("Stalled", "True"),))
    assert Site(model(1), stalled, model(2)).names() == ["model-0009", "model-0001", "model-0002"]


SLOW = CurrentLoad(rate=5.0, p99=300.0, errors=0.0)
TARGET = {"scaling": {"maxReplicas": 4, "targets": {"latency": "200ms"}}}


@pytest.mark.parametrize(
    ("deployment", "load", "expected"),
    [
        (model(), NO_LOAD, []),
        (model(spec=TARGET), SLOW, ["slow"]),
        # The policy Rules ignores the objective.
        (model(spec={"scaling": TARGET["scaling"] | {"policy": "Rules"}}), SLOW, []),
        (model(), SLOW, []),
        (model(spec=TARGET), CurrentLoad(rate=5.0), []),
        (model(), CurrentLoad(rate=5.0, errors=0.9), []),
        (model(), CurrentLoad(rate=5.0, errors=1.0), ["errors"]),
        (model(conditions=(condition("Ready", "False"),)), CurrentLoad(rate=5.0, errors=100.0), ["unready", "errors"]),
        (model(conditions=(READY, condition("Stalled", "True")), spec=TARGET), SLOW, ["slow", "stalled"]),
        (model(status={"scaling": {"signals": [{"name": "a", "missing": "why"}]}}), NO_LOAD, ["blind"]),
        (model(conditions=(READY, condition("ScalingActive", "Unknown"))), NO_LOAD, ["blind"]),
        (model(conditions=(READY, condition("ScalingActive", "False"))), NO_LOAD, []),
        (model(status={"scaling": {"limitedBy": ["max"]}}), NO_LOAD, ["limited"]),
    ],
)
def test_problems_follow_from_the_state_and_the_load(
    deployment: Object, load: CurrentLoad, expected: list[str]
) -> None:
    assert problems(row(deployment), load) == expected


def test_a_stalled_model_that_serves_nothing_comes_before_slow_ones() -> None:
    """Without an earlier revision, requests aren't answered, which is more urgent than a change without effect."""
    failed = condition("Ready", "False"), condition("Stalled", "True")
    site = Site(model(1, spec=TARGET), model(2, conditions=failed))

    assert problems(row(model(conditions=failed)), NO_LOAD) == ["unready", "stalled"]
    assert [entry["name"] for entry in site.page(problem="unready")["rows"]] == ["model-0002"]


def busy(rate: float, **more: float) -> ModelNumbers:
    return ModelNumbers(rate=rate, **{"rejected": 0.0, "lost": 0.0, "failed": 0.0, **more})


def test_models_with_problems_come_first_and_then_the_busiest() -> None:
    site = Site(
        model(1), model(2), model(3, spec=TARGET), model(4), model(5, conditions=(condition("Ready", "False"),))
    )
    counts = ReplicaCounts(replicas=1, ready=1, desired=1)
    for number, numbers in ((1, busy(1.0)), (2, busy(9.0)), (3, busy(2.0)), (4, busy(4.0, rejected=1.0))):
        site.history.add(name(number), 0.0, counts, numbers, Quantiles(100.0, 300.0, 400.0))
    assert [int(model_name[-1]) for model_name in site.names()] == [5, 4, 3, 2, 1]
    assert site.names(problem="slow") == ["model-0003"]
    assert site.names(problem="unhealthy") == ["model-0005"]
    assert [int(model_name[-1]) for model_name in site.names(problem="any")] == [5, 4, 3]


def test_totals_add_up_what_is_known_and_say_of_how_many() -> None:
    rolling = {
        "rollout": {"phase": "Progressing", "strategy": "Canary", "message": "m", "canary": {"step": 2, "weight": 25}}
    }
    site = Site(model(1, spec=TARGET), model(2, "team-b"), model(3, "team-b", status=rolling))
    counts = ReplicaCounts(replicas=1, ready=1, desired=1)
    site.history.add(name(1), 0.0, counts, busy(10.0, rejected=0.5), Quantiles(100.0, 300.0, 400.0))
    site.history.add(name(2, "team-b"), 0.0, counts, busy(30.0))
    page = site.page()
    assert (page["rate"], page["reporting"], page["total"]) == (40.0, 2, 3)
    assert page["errors"] == pytest.approx(0.5, rel=0.03)  # a share is kept to two digits
    assert (page["problems"]["slow"], page["judged"], page["troubled"]) == (1, 1, 1)
    assert page["namespaces"] == ["team-a", "team-b"]
    assert page["rollouts"] == [
        {
            "namespace": "team-b",
            "name": "model-0003",
            "phase": "Progressing",
            "strategy": "Canary",
            "message": "m",
            "updated": 1,
            "pods": 1,
            "weight": 25,
            "step": 2,
            "paused": False,
        }
    ]
    team_page = site.page(namespace="team-a")
    assert (team_page["total"], team_page["rate"], team_page["rolling"], team_page["namespaces"]) == (
        1,
        10.0,
        0,
        ["team-a", "team-b"],
    )
    assert site.page({"team-b"})["namespaces"] == ["team-b"]


def test_totals_of_models_without_reports_are_unknown_and_not_0() -> None:
    page = Site(model(1), model(2)).page()
    assert (page["rate"], page["errors"], page["cost"], page["reporting"], page["judged"]) == (None, None, None, 0, 0)


def test_live_numbers_go_before_the_status() -> None:
    status = {"summary": {"queue": "12/48", "gpu": "?"}}
    site = Site(model(1, status=status), model(2, status=status))
    site.now[name(1)] = ModelNumbers(waiting=3.0, gpu=50.0)
    rows = site.page(sort="name")["rows"]
    assert [(row["queue"], row["gpu"]) for row in rows] == [(3.0, 50.0), (12.0, None)]
    site.history.add(name(1), 0.0, ReplicaCounts(replicas=1, ready=1, desired=1), site.now[name(1)])
    assert site.names(sort="queue") == ["model-0001", "model-0002"]


def test_unknown_values_are_last_either_way() -> None:
    site = Site(*(model(n) for n in range(3)))
    counts = ReplicaCounts(replicas=1, ready=1, desired=1)
    site.history.add(name(0), 0.0, counts, ModelNumbers(rate=1.0))
    site.history.add(name(2), 0.0, counts, ModelNumbers(rate=9.0))
    assert site.names(sort="rate") == ["model-0000", "model-0002", "model-0001"]
    assert site.names(sort="rate", order="descending") == ["model-0002", "model-0000", "model-0001"]


def test_readers_see_and_count_only_what_they_may() -> None:
    site = Site(model(1, "team-a"), model(2, "team-b"))
    page = site.page({"team-b"})
    assert [row["namespace"] for row in page["rows"]] == ["team-b"]
    assert page["total"] == sum(page["counts"].values()) == 1
    assert site.page(set())["total"] == 0
    assert site.page()["total"] == 2


def test_a_model_that_changes_or_goes_changes_the_page() -> None:
    site = Site(model(1), model(2))
    site.page()
    site.models[name(1)] = model(1, version="2", spec={"replicas": 7})
    del site.models[name(2)]
    assert [(row["name"], row["replicas"]) for row in site.page()["rows"]] == [("model-0001", 7)]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"state": "odd"}, "state is 'odd'; it must be one of stalled, unready"),
        ({"sort": "odd"}, "sort is 'odd'; it must be one of urgency, state, name"),
        ({"problem": "odd"}, "problem is 'odd'; it must be one of any, unhealthy, unready, errors"),
        ({"namespace": "x" * 64}, "namespace has 64 characters; the limit is 63"),
        ({"order": "odd"}, "order is 'odd'; it must be ascending or descending"),
        ({"limit": "201"}, "limit is '201'; it must be a number from 1 to 200"),
        ({"offset": "-1"}, "offset is '-1'; it must be a number from 0"),
        ({"offset": "9" * 50}, "it must be a number from 0"),
        ({"text": "x" * 201}, "text has 201 characters; the limit is 200"),
    ],
)
def test_an_invalid_query_is_named(query: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidQuery, match=message.replace("(", r"\(")):
        TableQuery.of(query)


def test_loads_are_read_once_for_each_step_and_each_new_model() -> None:
    read: list[Name] = []

    class Recorded(ChartHistory):
        """A history that keeps which loads were read."""

        def load(self, name: Name) -> CurrentLoad:
            read.append(name)
            return super().load(name)

    history, objects = Recorded(), {Name("a", "one"): model(1, "a")}
    fleet = Fleet(history)

    def reads(changes: int, step: int) -> int:
        read.clear()
        source: Any = SimpleNamespace(
            names=lambda: list(objects),
            version=lambda _: "1",
            model=objects.get,
            reading=lambda _: UNKNOWN,
            changes=changes,
        )
        fleet.page(TableQuery(), source, namespaces=None, step=step, second=10 * changes + step)
        return len(read)

    assert reads(1, 1) == 1
    assert reads(2, 1) == 0
    objects[Name("a", "two")] = model(2, "a")
    assert reads(3, 1) == 1
    assert reads(3, 2) == 2


def test_pages_in_one_second_share_what_they_read() -> None:
    site = Site(*(model(number, "a") for number in range(50)))
    assert len(site.page()["rows"]) == 50
    for namespaces, query in [({"a"}, {}), (None, {"sort": "name"}), (None, {"text": "model"})]:
        assert len(site.same_second(namespaces, **query)["rows"]) == 50
    assert len(site.read) == 50
    assert len(site.unpacked) == 50


def test_changed_models_alone_are_read_again() -> None:
    site = Site(model(1, "a"), model(2, "a"))
    site.page()
    site.unpacked.clear()
    [first, second] = site.models
    site.models[first] = {**site.models[first], "metadata": {**site.models[first]["metadata"], "resourceVersion": "9"}}
    assert [row["name"] for row in site.page(sort="name")["rows"]] == [first.name, second.name]
    assert site.unpacked == [first]
    del site.models[first]
    assert [row["name"] for row in site.page()["rows"]] == [second.name]


def test_the_latency_of_a_row_is_the_quantile_of_its_objective() -> None:
    """targets.latency is for 99 of 100 requests, so a p95 within it isn't enough."""
    site = Site(model(spec=TARGET))
    [key] = site.models
    counts = ReplicaCounts(replicas=1, ready=1, desired=1)
    site.history.add(key, 0.0, counts, UNKNOWN, Quantiles(p50=20.0, p95=150.0, p99=300.0))
    [shown] = site.page()["rows"]
    assert (round(shown["latency"]), shown["latency_target"], shown["problems"]) == (300, 200.0, ["slow"])
