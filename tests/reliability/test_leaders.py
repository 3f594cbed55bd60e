"""R-9: two replicas, whose leader is paused, killed, cut off one way or ended, on a real API server with the real times of leases."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from e2e.cluster import pki
from e2e.cluster.cluster import Cluster
from halcyon.kube import kinds
from tests.faults.forks import ForkedOperator, Forks
from tests.integration.operator_process import install
from tests.integration.operator_space import Space, files
from tests.integration.proxy import Delay, Door, Proxy, no_fault
from tests.integration.waiting import PATIENCE, until
from tests.reliability.trials import DiscardedError, Trial, run

FAILOVERS, LANES = 200, 4
KINDS = ("pause", "kill", "slow requests", "end")
SLOW_S = 14.0
"""Delay of each request of a leader that is cut off: longer than the lease, so its writes arrive after the next leader's first."""
WAITS_S = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)
"""Times from a change until the leader is disturbed, so that its writes are under way."""
LANE_ROOM_S = 60.0
_EXIT = "the operator exits with an error"


class Pair:
    """An installation with a leader and a standby, each behind a door of its own."""

    def __init__(self, cluster: Cluster, proxy: Proxy, forks: Forks, directory: Path) -> None:
        self._proxy, self._forks, self._directory = proxy, forks, directory
        self.namespace = install(cluster)
        self.space = Space(cluster.api, f"{self.namespace}-models")
        self.space.make()
        self._replicas: list[tuple[ForkedOperator, Door]] = []
        self._cluster, self._count = cluster, 1

    def start(self) -> None:
        """Start both replicas, and serve a model."""
        for name in ("op-a", "op-b"):
            self._replicas.append(self._started(name))
            if name == "op-a":
                self._replicas[0][0].wait_leading()
        self._replicas[1][0].wait_ready()
        self.space.serve(traffic={"balancerReplicas": 1})

    def _started(self, name: str) -> tuple[ForkedOperator, Door]:
        door = self._proxy.open()
        operator = ForkedOperator(
            self.namespace, name, door.kubeconfig, self._directory, self.space.namespace, forks=self._forks
        )
        operator.start()
        return operator, door

    def _scale(self) -> None:
        self._count = self._count % 4 + 1
        self.space.scale(self._count)

    def fail_over(self, number: int) -> Trial:
        """Run one trial. Replicas that ended by themselves are started again, as the kubelet does.

        Raises:
            DiscardedError: a replica has lost its lease, which happens on a busy machine.
        """
        self._restart_ended()
        try:
            return self._fail_over(number)
        except AssertionError as error:
            lost = [line["error"] for operator, _ in self._replicas for line in operator.logged(_EXIT)]
            raise DiscardedError(f"{str(error)[:200]}; {lost[-1:]}") if lost else error from error

    def _restart_ended(self) -> None:
        """Kill a replica that sleeps, start those that don't run, and put the leader first."""
        for number, (operator, door) in enumerate(self._replicas):
            assert operator.process is not None
            if door.rule is not no_fault and operator.process.poll() is None:
                operator.process.kill()
            if operator.process.poll() is None and operator.fetch("/readyz") == "":
                operator.process.kill()
            if operator.process.poll() is not None or door.rule is not no_fault:
                operator.wait(10)
                self._replicas[number] = self._started(operator.name)
        until(self._leaders, lambda names: len(names) == 1, goal="one replica leads", limit_s=20)
        self._replicas.sort(key=lambda replica: replica[0].name not in self._leaders())
        for operator, _ in self._replicas:
            operator.wait_ready(limit_s=30)

    def _leaders(self) -> list[str]:
        return [o.name for o, _ in self._replicas if o.metrics().get("halcyon_leader") == 1]

    def _fail_over(self, number: int) -> Trial:
        """Disturb the leader while it works, and check what it writes after the standby has the lease."""
        (leader, old_door), (standby, new_door) = self._replicas
        kind = KINDS[number % len(KINDS)]
        before = len(new_door.answered)
        self._scale()
        time.sleep(WAITS_S[number // len(KINDS) % len(WAITS_S)])
        if leader.metrics().get("halcyon_leader") != 1:
            raise DiscardedError(f"{leader.name} doesn't lead any more")
        began = time.monotonic()
        if kind == "slow requests":
            old_door.rule = lambda _: Delay(SLOW_S)
        else:
            leader.signal({"pause": signal.SIGSTOP, "kill": signal.SIGKILL, "end": signal.SIGTERM}[kind])
        until(lambda: taken_at(new_door, before), bool, goal="the standby has the lease", limit_s=LANE_ROOM_S)
        took = taken_at(new_door, before)
        until(lambda: standby.metrics().get("halcyon_leader"), lambda n: n == 1, goal="the standby leads")
        self._scale()
        until(self.space.replicas, lambda n: n == self._count, goal="the new leader works")
        if kind == "pause":
            leader.signal(signal.SIGCONT)
        problems = self._ended(leader)
        if kind == "slow requests":
            # The last of its requests has arrived by then.
            time.sleep(max(began + SLOW_S + 8.0 - time.monotonic(), 0))
        self.space.wait_settled(limit_s=30)
        problems += late_writes(old_door, new_door, took)
        if self.space.replicas() != self._count:
            problems.append(f"{self.space.replicas()} replicas in place of {self._count}")
        if standby.logged(_EXIT):
            raise AssertionError("the new leader has ended")
        if complaints := standby.complaints():
            problems.append(f"errors in the log: {complaints[:2]}")
        old_door.rule = no_fault
        old_door.closed.set()
        fresh = self._started(leader.name)
        self._replicas = [(standby, new_door), fresh]
        fresh[0].wait_ready(limit_s=30)
        return Trial(problems, {"takeover_s": round(took - began, 1)}, kind)

    @staticmethod
    def _ended(leader: ForkedOperator) -> list[str]:
        try:
            leader.wait(10 * PATIENCE)
        except subprocess.TimeoutExpired:
            leader.signal(signal.SIGKILL)
            return ["the former leader goes on"]
        return []

    def end(self) -> None:
        """Kill the replicas, and delete the namespaces."""
        for operator, _ in self._replicas:
            if operator.process is not None and operator.process.poll() is None:
                operator.signal(signal.SIGKILL)
        self.space.end()
        self._cluster.api.call("DELETE", f"/api/v1/namespaces/{self.namespace}")


def taken_at(door: Door, since: int) -> float:
    """Return the monotonic time at which the replica behind a door got the lease; 0 if it hasn't, in seconds."""
    for (request, status), at in zip(door.answered[since:], door.answered_at[since:], strict=False):
        if request.resource == kinds.LEASE.plural and request.method in {"PUT", "PATCH", "POST"} and status < 300:
            return at
    return 0.0


def late_writes(old: Door, new: Door, since_s: float) -> list[str]:
    """Return a sentence for each write of the former leader, Events apart, that was accepted after a monotonic time."""
    written = dict(accepted(new, since_s))
    return [
        f"{target} was written {'after' if written.get(target, at) < at else 'before'} the new leader wrote it"
        for target, at in accepted(old, since_s)
    ]


def accepted(door: Door, since_s: float) -> list[tuple[str, float]]:
    """Return the writes that the API server accepted after a monotonic time, latest first, with their times in seconds."""
    return [
        (f"{request.method} {request.target}", at)
        for (request, status), at in reversed(list(zip(door.answered, door.answered_at, strict=False)))
        if at > since_s and request.write is not None and status < 300 and request.resource != kinds.EVENT.plural
    ]


@pytest.fixture
def pairs(cluster: Cluster, tmp_path: Path) -> Iterator[list[Pair]]:
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(pki.admin(cluster.place, cluster.network)))
        forks = stack.enter_context(Forks(real_leases=True))
        started = []
        for _ in range(LANES):
            started.append(Pair(cluster, proxy, forks, tmp_path))
            stack.callback(started[-1].end)
        yield started


def test_former_leaders_write_nothing_after_a_takeover(pairs: list[Pair]) -> None:
    def lane(pair: Pair) -> Callable[[int], Trial]:
        pair.space.apply(files())
        pair.start()
        return pair.fail_over

    assert run("R-9", FAILOVERS, [lane(pair) for pair in pairs], share=0.35) == {}
