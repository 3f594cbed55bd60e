"""Plans of faults: what is disturbed, when a step and a run are over, and which version of the code was tested."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.kube import kinds
from tests.faults import rest
from tests.faults.campaigns import Timed, Workbench
from tests.faults.drive import Driver, LeaseLostError
from tests.faults.load import Load
from tests.faults.plans import MODEL, SITE, Plan, Point, Points, crashes, in_turn, sliced, spread
from tests.faults.rest import IDLE_S, REST_S, SETTLED_AFTER_S, at_rest
from tests.faults.results import Results
from tests.faults.stale import must_have_had
from tests.faults.tested_code import Code, load_codes, modules_of, present, save_codes, without_words
from tests.faults.workloads import WORKLOADS, balanced
from tests.integration.proxy import Request


def test_writes_are_points_by_their_target_and_number() -> None:
    points = Points()
    assert points.add(MODEL, "PATCH", "deployments/m-a") == Point(MODEL, "PATCH", "deployments/m-a", 1)
    assert points.add(SITE, "PATCH", "deployments/m-a").number == 1
    assert points.add(MODEL, "PATCH", "deployments/m-a").number == 2
    assert points.add(MODEL, "DELETE", "deployments/m-a").number == 1
    assert [point.number for point in points.points] == [1, 1, 2, 1]


def test_pods_are_points_without_the_random_part_of_their_name() -> None:
    points = Points()
    first = points.add(MODEL, "POST", "pods/m-a-6b7f9c8d5-x2x4z/eviction")
    second = points.add(MODEL, "POST", "pods/m-a-6b7f9c8d5-abcde/eviction")
    assert (first.target, second.target) == ("pods/m-a-*/eviction",) * 2
    assert (first.number, second.number) == (1, 2)


def test_crashes_cover_each_point_before_and_after_once() -> None:
    points = Points()
    seen = [points.add(MODEL, "PATCH", f"services/{name}") for name in ("m", "m", "n")]
    found = crashes("create", [*seen, *seen])
    assert len({plan.id for plan in found}) == len(found) == 6
    assert found[0] == Plan("create", "crash-before", "model:PATCH:services/m:1")


@given(st.lists(st.integers(), max_size=60), st.integers(1, 20))
def test_samples_have_the_ends_and_no_more_than_asked(items: list[int], most: int) -> None:
    found = spread(items, most)
    assert len(found) == min(len(items), most)
    if items:
        assert found[0] == items[0]
        assert most == 1 or found[-1] == items[-1]


def test_plans_of_all_workloads_are_in_a_slice_in_turn() -> None:
    assert in_turn([["a1", "a2", "a3"], ["b1"], [], ["c1", "c2"]]) == ["a1", "b1", "c1", "a2", "c2", "a3"]
    assert sliced(["a1", "b1", "c1", "a2", "c2"], 2) == [["a1", "b1"], ["c1", "a2"], ["c2"]]


@dataclass
class Left:
    """A site that counts how often it was left."""

    times: int = 0

    def leave(self) -> None:
        """Count a leave."""
        self.times += 1


def test_plans_of_a_failed_slice_are_discarded_and_the_campaign_goes_on() -> None:
    site: Any = Left()
    saved: list[str] = []
    known = {"create": Results("create")}
    bench = Workbench(site, known, math.inf, "commit", "code", save=lambda results: saved.append(results.name))
    slice_ = [Plan("create", "crash-before", f"model:PATCH:services/m:{number}") for number in (1, 2)]
    with Timed(bench, slice_):
        raise AssertionError("the operator has ended")
    assert (bench.discarded, site.times, saved) == ([plan.id for plan in slice_], 1, [])
    with Timed(bench, slice_):
        pass
    assert saved == ["create"]
    with pytest.raises(KeyError), Timed(bench, slice_):
        raise KeyError("a mistake of the tests")


class Ended:
    """An operator that has ended with this error, or runs on if there is none."""

    def __init__(self, error: str = "") -> None:
        self.error, self.process = error, self

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""
        return 1 if self.error else None

    def logged(self, message: str) -> list[dict[str, str]]:
        """Return the line with the error."""
        assert message == "the operator exits with an error"
        return [{"error": self.error}]

    def tail(self) -> str:
        """Return the end of the log."""
        return self.error

    def stop(self) -> int:
        """Stop in order."""
        return 0


LOST = "lease site/halcyon is held by 'op-0' or cannot be reached"


def led(*operators: Ended) -> tuple[object, int]:
    """Do some work with these operators in turn; return the one that has done it, and how often it was begun."""
    left: Any = [(operator, None) for operator in operators]
    begun: list[object] = []
    last = Driver.led(lambda operator, _: begun.append(operator), lambda: left.pop(0))
    return last, len(begun)


def test_operators_that_lose_their_lease_are_started_again() -> None:
    steady = Ended()
    assert led(steady) == (steady, 1)
    assert led(Ended(LOST), Ended(LOST), steady) == (steady, 3)
    with pytest.raises(LeaseLostError, match="cannot be reached"):
        led(*[Ended(LOST)] * 9)


def test_operators_that_end_otherwise_are_a_failure() -> None:
    with pytest.raises(AssertionError, match="port 80 is taken") as failed:
        led(Ended("port 80 is taken"), Ended())
    assert not isinstance(failed.value, LeaseLostError)


def test_views_of_a_forgotten_version_are_not_judged() -> None:
    lines = [
        {"message": "leading"},
        {"message": "cannot watch", "error": "watch pods: too old resource version: 462 (1641)"},
    ]
    must_have_had("462", lines[:1])
    with pytest.raises(AssertionError, match="version 462 is too old for the API server"):
        must_have_had("462", lines)


# Rest

SPACE = "f-1"


@dataclass
class Time:
    """A clock that sleeps at once."""

    now: float = 100.0

    def monotonic(self) -> float:
        """Return the time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let the time pass."""
        self.now += seconds


@dataclass
class Scene:
    """An operator with a door, and when objects have changed."""

    clock: Time = field(default_factory=Time)
    began: float = 0.0
    ready: float = 0.0
    waiting: float = 0.0
    seen: list[Request] = field(default_factory=list)
    closed: threading.Event = field(default_factory=threading.Event)
    changed: float = 0.0

    def metrics(self) -> dict[str, float]:
        """Return the samples of the operator's queues."""
        return {"halcyon_queue_ready": self.ready, "halcyon_queue_waiting": self.waiting}

    def writes(self) -> list[Request]:
        """Return the writes through the door so far."""
        return [request for request in self.seen if request.at <= self.clock.now]

    def changed_at(self, namespaces: set[str]) -> float:
        """Return the time of the last change."""
        assert namespaces == {SPACE}
        return self.changed

    def wait(self, *, limit_s: float = 100.0, settled: bool = True) -> tuple[dict[str, str], float]:
        """Wait for rest; return the writes that are left and the time that it took, in seconds."""
        this: Any = self
        began = self.clock.now
        left = at_rest(this, this, this, {SPACE}, began + limit_s, settled=settled)
        return left, self.clock.now - began

    def write(self, at: float, *, namespace: str = SPACE, target: str = "services/m") -> None:
        """Add a write."""
        self.seen.append(Request("PATCH", f"/api/v1/namespaces/{namespace}/{target}", False, at, 1))


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A scene with an operator that was started long ago."""
    made = Scene()
    monkeypatch.setattr(rest, "time", made.clock)
    return made


def test_runs_are_at_rest_soon_when_the_queues_are_empty(scene: Scene) -> None:
    left, took_s = scene.wait()
    assert left == {}
    assert IDLE_S <= took_s <= IDLE_S + 0.5


def test_runs_with_something_scheduled_wait_longer(scene: Scene) -> None:
    for name in ("ready", "waiting"):
        setattr(scene, name, 1.0)
        left, took_s = scene.wait()
        assert left == {}
        assert took_s >= REST_S
        setattr(scene, name, 0.0)


def test_changed_objects_of_a_run_prolong_its_wait(scene: Scene) -> None:
    scene.changed = scene.clock.now + 3.0
    assert scene.wait()[1] >= 3.0 + IDLE_S


def test_writes_of_the_run_prolong_its_wait_and_others_do_not(scene: Scene) -> None:
    scene.write(scene.clock.now + 3.0, namespace="another")
    scene.write(scene.clock.now + 3.0, target="events/m")
    assert scene.wait()[1] <= IDLE_S + 0.5
    scene.write(scene.clock.now + 3.0)
    assert scene.wait()[1] >= 3.0 + IDLE_S


def test_young_operators_publish_first_that_no_reports_come(scene: Scene) -> None:
    scene.began = scene.clock.now
    assert scene.wait(settled=False)[1] < SETTLED_AFTER_S
    scene.began = scene.clock.now
    assert scene.wait()[1] >= SETTLED_AFTER_S


def test_pauses_of_some_seconds_between_writes_are_no_rest(scene: Scene) -> None:
    for after_s in (4.0, 8.0, 12.0):
        scene.write(scene.clock.now + after_s)
    assert scene.wait()[1] >= 12.0 + IDLE_S


def test_writes_that_never_end_are_returned_by_namespace(scene: Scene) -> None:
    scene.waiting = 1.0
    scene.write(scene.clock.now + 9.0)
    assert scene.wait(limit_s=10.0)[0] == {SPACE: "PATCH services/m"}


def test_killed_operators_are_not_waited_for(scene: Scene) -> None:
    scene.waiting = 1.0
    scene.closed.set()
    assert scene.wait() == ({}, 0.0)


# Ends of steps


class Served:
    """A namespace whose model is served, with one Deployment of balancers."""

    def __init__(self, deployment: dict[str, Any]) -> None:
        self._deployment = deployment

    def settled(self) -> bool:
        """Return True, since the model is served."""
        return True

    def must(self, kind: object, name: str) -> dict[str, Any]:
        """Return the Deployment."""
        assert (kind, name) == (kinds.DEPLOYMENT, "m-balancer")
        return self._deployment


@pytest.mark.parametrize(
    ("observed", "updated", "over"),
    [(2, 2, True), (1, 2, False), (2, 1, False)],
    ids=["all are of the template", "the template is newer than the status", "one is of the former template"],
)
def test_rotated_secrets_wait_for_balancers_of_the_template(observed: int, updated: int, *, over: bool) -> None:
    status = {"observedGeneration": observed, "replicas": 2, "updatedReplicas": updated, "readyReplicas": 2}
    space: Any = Served({"metadata": {"generation": 2}, "spec": {"replicas": 2}, "status": status})
    assert balanced(space) is over


def test_the_load_of_a_workload_ends_with_its_autoscaling() -> None:
    applied: list[dict[str, Any]] = []

    class Recorded:
        """A namespace that keeps what is applied."""

        namespace = "team"

        def apply(self, obj: dict[str, Any]) -> None:
            applied.append(obj)

    space: Any = Recorded()
    last = WORKLOADS["scale-planner"].steps[-1]
    last.act(space)
    assert "scaling" not in applied[-1]["spec"]
    sample = json.loads(Load(space)._record(["m-a-1"], "m-balancer-1"))["pods"][0]
    assert not {"rows", "executions"} & {name for name, value in sample.items() if value is not None}


# Standstills

_PROGRAM = """
import time
from tests.faults.site import Standstills
with Standstills(limit_s=0.4) as stills:
    began = time.monotonic()
    print(stills.since(began), flush=True)
    input()
    time.sleep(0.2)
    print(stills.since(began), stills.since(time.monotonic()), flush=True)
"""


def test_suspended_processes_have_a_standstill_from_then_on() -> None:
    command = [sys.executable, "-c", _PROGRAM]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "False\n"
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(1.0)
    os.kill(process.pid, signal.SIGCONT)
    assert process.communicate("\n", timeout=60)[0] == "True False\n"


# Versions of the code


def package(folder: Path, files: dict[str, str]) -> Path:
    """A folder with modules below halcyon."""
    for name, text in files.items():
        file = folder / "halcyon" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def test_imported_modules_are_found_also_within_functions(tmp_path: Path) -> None:
    source = package(
        tmp_path,
        {
            "__init__.py": "",
            "entry.py": "import json\nfrom halcyon.a import one\n\ndef later():\n    from halcyon import b\n",
            "a/__init__.py": "",
            "a/one.py": "import halcyon.c",
            "b.py": "",
            "c.py": "",
            "unused.py": "",
        },
    )
    names = {"halcyon", "halcyon.entry", "halcyon.a", "halcyon.a.one", "halcyon.b", "halcyon.c"}
    assert modules_of(source, "halcyon.entry").keys() == names


def test_digests_of_modules_ignore_comments_and_docstrings(tmp_path: Path) -> None:
    def digest(text: str) -> str:
        return modules_of(package(tmp_path, {"__init__.py": "", "m.py": text}), "halcyon.m")["halcyon.m"]

    plain = digest("def f():\n    return 1\n")
    assert digest('"""Words."""\n\n\ndef f():  # a comment\n    """Other words."""\n    return (1)\n') == plain
    assert digest("def f():\n    return 2\n") != plain


def test_schemas_are_compared_without_descriptions() -> None:
    schema = {"description": "words", "properties": {"description": {"type": "string", "description": "more"}}}
    assert without_words(schema) == {"properties": {"description": {"type": "string"}}}


def test_share_of_changed_modules_counts_added_and_removed_ones() -> None:
    one = Code({"a": "1", "b": "1", "c": "1"}, "s", "c1", "t")
    other = Code({"a": "1", "b": "2", "d": "1"}, "s", "c2", "t")
    assert one.changed(other) == other.changed(one) == 0.75
    assert one.is_close_to(one)
    assert not one.is_close_to(other)


def test_versions_of_the_code_are_the_same_after_they_were_written(tmp_path: Path) -> None:
    assert load_codes(tmp_path) == {}
    code = present("c", "t")
    assert len(code.modules) > 200
    save_codes(tmp_path, {code.digest: code})
    assert load_codes(tmp_path) == {code.digest: code}
    assert load_codes(tmp_path)[code.digest].digest == code.digest
