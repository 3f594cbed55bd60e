"""Whatever happens between the operator and the API server, the end is that of an undisturbed run.

The operator is a real process; a proxy stands before the real API server and disturbs (`proxy`). Pods are KWOK's. By default a
sample of the writes is disturbed, spread evenly; `HALCYON_FAULTS=all` disturbs each of them.
"""

import itertools
import os
import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.cluster import pki
from e2e.cluster.cluster import Cluster
from halcyon.kube import kinds
from tests.integration.operator_process import Operator, install
from tests.integration.operator_space import Space, deployment, files
from tests.integration.operator_state import State, differences, state
from tests.integration.proxy import Answer, Break, Delay, Door, Fault, Kill, Proxy, Request, Rule, no_fault
from tests.integration.waiting import PATIENCE, rested, until
from tests.ports import free_ports

ALL = os.environ.get("HALCYON_FAULTS") == "all"
BALANCER = {"balancerReplicas": 1}
BEFORE = deployment(scaling={"maxReplicas": 4, "actuator": "HPA"}, traffic=BALANCER)
AFTER = deployment(
    replicas=2,
    batching={"maxBatchSize": 8},
    traffic={**BALANCER, "queueLimit": 50},
    model={**BEFORE["spec"]["model"], "name": "other"},
)
ANSWERS: dict[str, Fault] = {
    "409": Answer(409),
    "429": Answer(429, retry_after_s=1),
    "500": Answer(500),
    "503": Answer(503),
    "broken before": Break(after=False),
    "broken after": Break(after=True),
    "slow": Delay(1.5),
}
TIME_OUT = {"timeout": Delay(25.0)}
"""Longer than the operator waits for any answer (20 s)."""


class Field:
    """The installation, the proxy, and namespaces to work in; one operator at a time."""

    def __init__(self, cluster: Cluster, proxy: Proxy, directory: Path) -> None:
        self.cluster, self.proxy, self.directory = cluster, proxy, directory
        self.namespace = install(cluster)
        self.port = free_ports(1)[0]
        self.spaces: list[Space] = []
        self.operators: list[Operator] = []

    def space(self, name: str = "f") -> Space:
        """A new namespace."""
        space = Space(self.cluster.api, f"{name}-{uuid.uuid4().hex[:8]}")
        space.make()
        self.spaces.append(space)
        return space

    def start(self, rule: Rule = no_fault, *, watch: str = "", in_turn: bool = False) -> tuple[Operator, Door]:
        """An operator behind a door. It bears the name of the one before, so that the lease is its at once."""
        started = threading.Event()
        # The port is part of the plan that agents are given.
        operator = Operator(self.namespace, "op-0", Path(), self.directory, watch, port=self.port)

        def kill() -> None:
            started.wait(5 * PATIENCE)
            operator.signal(signal.SIGKILL)

        door = self.proxy.open(rule, kill=kill, in_turn=in_turn)
        operator.kubeconfig = door.kubeconfig
        operator.start()
        started.set()
        self.operators.append(operator)
        return operator, door

    def end(self) -> None:
        """No process stays."""
        for operator in self.operators:
            if operator.process is not None and operator.process.poll() is None:
                operator.process.kill()
                operator.process.wait()
        for space in self.spaces:
            space.end()


@pytest.fixture(scope="module")
def proxy(cluster: Cluster) -> Iterator[Proxy]:
    with Proxy(pki.admin(cluster.place, cluster.network)) as started:
        yield started


@pytest.fixture
def field(cluster: Cluster, proxy: Proxy, tmp_path: Path) -> Iterator[Field]:
    scene = Field(cluster, proxy, tmp_path)
    yield scene
    scene.end()
    cluster.api.call("DELETE", f"/api/v1/namespaces/{scene.namespace}")


def sample(count: int, most: int) -> list[int]:
    """Numbers from 1 to `count`; `most` of them, evenly spread, unless all are wanted."""
    if ALL or count <= most:
        return list(range(1, count + 1))
    return sorted({1 + round(i * (count - 1) / (most - 1)) for i in range(most)})


def create(space: Space) -> None:
    space.apply(files(), BEFORE)


def change(space: Space) -> None:
    space.apply(files("max_batch_size: 4"), AFTER)


def undisturbed(field: Field, *steps: Callable[[Space], None]) -> tuple[State, int]:
    """The end state, and the number of writes of the last step (without those of the certificate)."""
    space = field.space("quiet")
    number = 0
    for step in steps:
        step(space)
        operator, door = field.start(watch=space.namespace, in_turn=True)
        space.wait_settled()
        number = len([r for r in door.writes() if r.namespace == space.namespace])
        assert operator.stop() == 0
    # Pods of the old revision go, and Deployments' conditions come to rest.
    return rested(lambda: state(space), for_s=1), number


def wait_alike(spaces: dict[str, Space], expected: State, *, limit_s: float) -> dict[str, list[str]]:
    """Until all of them are as wanted; what differs where time was too short, by their names."""
    left = dict(spaces)
    divergent: dict[str, list[str]] = {}
    end = time.monotonic() + limit_s * PATIENCE
    while left and time.monotonic() < end:
        for name, space in list(left.items()):
            divergent[name] = differences(state(space), expected)
            if not divergent[name]:
                del left[name], divergent[name]
        time.sleep(0.1)
    return divergent


def converge(field: Field, expected: State, spaces: dict[str, Space], *, limit_s: float = 45.0) -> dict[str, list[str]]:
    """What still differs, by the fault that it comes from, when an undisturbed operator has had its time."""
    operator, _ = field.start()
    divergent = wait_alike(spaces, expected, limit_s=limit_s)
    complaints = operator.complaints()
    assert operator.stop() == 0
    assert not complaints, complaints
    return divergent


def crash(field: Field, space: Space, number: int, *, after: bool) -> bool:
    """Run an operator that is killed at a write of this namespace; whether it was."""
    counted = itertools.count(1)

    def rule(request: Request) -> Fault | None:
        ours = request.write is not None and request.namespace == space.namespace
        return Kill(after=after) if ours and next(counted) == number else None

    operator, door = field.start(rule, watch=space.namespace, in_turn=True)
    until(
        lambda: door.closed.is_set() or space.settled(), bool, goal=f"killed at write {number}", context=operator.tail
    )
    if door.closed.wait(0.5):
        assert operator.wait() == -signal.SIGKILL
        return True
    operator.stop()
    return False


def crash_everywhere(field: Field, number: int, expected: State, spaces: list[Space], most: int) -> None:
    cases: dict[str, Space] = {}
    killed = 0
    for n in sample(number, most):
        for after in (False, True):
            space = spaces.pop()
            killed += crash(field, space, n, after=after)
            cases[f"killed {'after' if after else 'before'} write {n} of {number}"] = space
    divergent = converge(field, expected, cases)
    print(f"{killed} kills in {len(cases)} runs, {len(divergent)} divergences")  # noqa: T201  # the figure of the test
    assert divergent == {}
    assert killed >= len(cases) - 4  # the last status writes come together at times


def test_an_operator_killed_at_any_write_of_a_creation_converges(field: Field) -> None:
    expected, number = undisturbed(field, create)
    spaces = [field.space() for _ in range(2 * len(sample(number, 3)))]
    for space in spaces:
        create(space)
    crash_everywhere(field, number, expected, spaces, 3)


def test_an_operator_killed_at_any_write_of_a_change_converges(field: Field) -> None:
    expected, number = undisturbed(field, create, change)
    spaces = [field.space() for _ in range(2 * len(sample(number, 3)))]
    for space in spaces:
        create(space)
    operator, _ = field.start()
    for space in spaces:
        space.wait_settled(limit_s=60)
    assert operator.stop() == 0
    for space in spaces:
        change(space)
    crash_everywhere(field, number, expected, spaces, 3)


def test_an_operator_killed_at_its_certificate_or_lease_starts_again(field: Field) -> None:
    for resource, after in itertools.product(("secrets", "leases"), (False, True)):
        field.namespace = install(field.cluster)

        def rule(request: Request, resource: str = resource, after: bool = after) -> Fault | None:
            return Kill(after=after) if request.resource == resource and request.method != "GET" else None

        operator, door = field.start(rule)
        assert door.closed.wait(15 * PATIENCE), operator.tail()
        again, _ = field.start()
        again.wait_leading()
        again.wait_ready()
        assert again.stop() == 0
        assert not again.complaints()


def test_each_write_once_answered_with_each_error_converges(field: Field) -> None:
    expected, number = undisturbed(field, create)
    faults = ANSWERS | (TIME_OUT if ALL else {})
    cases = {
        f"write {n} of {number}: {name}": (field.space(), n, fault)
        for n in sample(number, 3)
        for name, fault in faults.items()
    }
    counts: Counter[str] = Counter()
    by_namespace = {space.namespace: (n, fault) for space, n, fault in cases.values()}

    def rule(request: Request) -> Fault | None:
        if request.write is None or request.namespace not in by_namespace:
            return None
        counts[request.namespace] += 1
        n, fault = by_namespace[request.namespace]
        return fault if counts[request.namespace] == n else None

    hold(field, rule, expected, {name: space for name, (space, _, _) in cases.items()})


def test_every_request_failing_the_first_time_converges(field: Field) -> None:
    expected, _ = undisturbed(field, create)
    cases = {name: field.space() for name in ANSWERS}
    by_namespace = {space.namespace: ANSWERS[name] for name, space in cases.items()}
    met: set[tuple[str, str, str]] = set()

    def rule(request: Request) -> Fault | None:
        key = (request.namespace, request.method, request.target)
        if request.namespace not in by_namespace or key in met:
            return None
        met.add(key)
        return by_namespace[request.namespace]

    hold(field, rule, expected, cases)


def hold(field: Field, rule: Rule, expected: State, cases: dict[str, Space]) -> None:
    """One operator, disturbed in every namespace in its own way, comes to the end in all of them without being restarted."""
    for space in cases.values():
        create(space)
    operator, door = field.start(rule)
    assert wait_alike(cases, expected, limit_s=240 if ALL else 60) == {}
    attempts = Counter((r.namespace, r.target) for r in door.writes() if not r.target.endswith(("/status", "events")))
    often = {key: n for key, n in attempts.items() if n > 6 and key[0] in {s.namespace for s in cases.values()}}
    assert operator.stop() == 0
    assert not operator.complaints(), operator.complaints()
    assert often == {}


@pytest.mark.parametrize("name", ["429", "500", "503", "broken before"])
def test_an_operator_whose_first_reads_all_fail_starts_working(field: Field, name: str) -> None:
    space = field.space()
    create(space)
    met: set[tuple[str, bool]] = set()

    def rule(request: Request) -> Fault | None:
        key = (request.path, request.watching)
        if request.method != "GET" or key in met:
            return None
        met.add(key)
        return ANSWERS[name]

    operator, _ = field.start(rule, watch=space.namespace)
    space.wait_settled(limit_s=30)
    assert operator.process is not None
    assert operator.process.poll() is None
    assert operator.stop() == 0
    # kopf tells each attempt that failed as an error.
    complaints = [line for line in operator.complaints() if not line["message"].startswith("Request attempt")]
    assert not complaints, complaints


def test_a_failing_write_is_retried_at_most_once_a_second(field: Field) -> None:
    last_s = 10.0
    faults: dict[str, Fault] = {
        "deployments/m-a": Answer(500),
        "modeldeployments/m/status": Answer(409),
        "configmaps/m-balancer": Answer(409),
        "services/m": Break(after=False),
        "deployments/m-balancer": Answer(429, retry_after_s=1),
    }
    spaces = {target: field.space() for target in faults}
    for space in spaces.values():
        create(space)
    bad = {space.namespace: target for target, space in spaces.items()}
    healed = threading.Event()

    def rule(request: Request) -> Fault | None:
        target = bad.get(request.namespace)
        if target is None or request.write is None or request.target != target or healed.is_set():
            return None
        return faults[target]

    operator, door = field.start(rule)
    operator.wait_leading()
    # While children are being made, each of them is a reason to look again.
    rested(lambda: [sorted(space.children()) for space in spaces.values()], for_s=3)
    began = time.monotonic()
    until(time.monotonic, lambda now: now > began + last_s, goal="the faults have lasted", limit_s=last_s + 5)
    tried = [(bad[r.namespace], r.target, r.at) for r in door.writes() if r.namespace in bad]
    healed.set()
    rate = Counter((target, written) for target, written, at in tried if began < at <= began + last_s)
    # Eleven posts make ten seconds of fence.
    assert {key: n for key, n in rate.items() if n > last_s + 1} == {}
    assert {target for target, written, _ in tried if target == written} == faults.keys()
    print(f"attempts in {last_s:g} s: {dict(rate)}")  # noqa: T201  # the figure of the test
    for target, space in spaces.items():
        if target != "configmaps/m-balancer":  # refused, so looked at again every 30 s only
            space.wait_settled(limit_s=30)
    assert operator.stop() == 0
    assert not operator.complaints(), operator.complaints()


def test_a_change_while_watches_are_broken_is_seen_when_they_are_back(field: Field) -> None:
    space = field.space()
    create(space)
    broken = threading.Event()

    def rule(request: Request) -> Fault | None:
        return Answer(503) if broken.is_set() and request.method == "GET" else None

    operator, door = field.start(rule, watch=space.namespace)
    space.wait_settled()
    before = space.must(kinds.SERVICE, "m")["metadata"]["uid"]
    broken.set()
    door.drop_streams()
    space.delete(kinds.SERVICE, "m")
    until(lambda: len(operator.logged("cannot watch")), lambda n: n > 3, goal="the watches fail")
    broken.clear()
    until(
        lambda: (space.get(kinds.SERVICE, "m") or {"metadata": {"uid": before}})["metadata"]["uid"],
        lambda uid: uid != before,
        goal="the Service is made again",
    )
    assert operator.stop() == 0


def test_a_status_that_arrives_after_a_newer_one_is_written_over(field: Field) -> None:
    # As when a request is given up, tried again, and then reaches the API server after all.
    space = field.space()
    create(space)
    operator, _ = field.start(watch=space.namespace)
    space.wait_settled()
    newer = {k: v for k, v in space.status().items() if k != "observedGeneration"}
    for _ in range(5):
        late = {
            "replicas": 0,
            "readyReplicas": 0,
            "pods": {"total": 0, "ready": 0, "updated": 0, "unschedulable": 0},
            "summary": {"ready": "0/1"},
        }
        space.merge(kinds.MODEL_DEPLOYMENT, "m", {"status": late}, subresource="status")
        until(
            lambda: {k: v for k, v in space.status().items() if k != "observedGeneration"},
            lambda now: now == newer,
            goal="the status is right again",
            limit_s=5,
        )
    assert operator.stop() == 0
