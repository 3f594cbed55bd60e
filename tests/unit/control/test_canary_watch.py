"""What a canary's judge is told: differences of Triton's counters, by revision, from a hub that agents speak to."""

from __future__ import annotations

from typing import Any

from halcyon.control.canary_watch import LOOK_S, CanaryWatch
from halcyon.control.kinds import Key
from halcyon.control.rollout import Rollout
from halcyon.signals.hub import Hub
from tests.unit.control.objects import pod
from tests.unit.control.rolling import Cluster
from tests.unit.control.test_canary import begun
from tests.unit.signals.records import record, triton

KEY = Key("team", "digits")


class Watched:
    """A canary of one pod beside a stable one, and the agent that tells of them."""

    def __init__(self) -> None:
        cluster, self.stable, self.canary = begun(count=2, room=3)
        self.rollout = rollout(cluster)
        self.now = 1000.0
        self.hub = Hub()
        self.watch = CanaryWatch(self.hub, lambda: self.now)
        self.watch.planned(KEY, self.rollout)
        self.totals = {"old": [500, 0], "new": [500, 0]}

    def look(self, **more: tuple[int, int]) -> str | None:
        """So many more answered and failed since the last look; the verdict."""
        self.now += LOOK_S
        for name, (succeeded, failed) in more.items():
            self.totals[name][0] += succeeded
            self.totals[name][1] += failed
        for at in (self.now - 1, self.now):  # growth counts once it is confirmed
            told = [
                triton(name, at=at, succeeded=s, failed=f, executions=s + f, queue_us=100 * s)
                for name, (s, f) in self.totals.items()
            ]
            self.hub.receive(record(at, *told, namespace="team", name="digits"), at)
        servers = [pod("old", ready=True, revision=self.stable), pod("new", ready=True, revision=self.canary)]
        found = self.watch.verdict(KEY, servers)
        assert found is None or found.revision == self.canary
        return found and found.action


def rollout(cluster: Cluster) -> Rollout:
    cluster.settle(rounds=4, step_s=1)
    found: Any = cluster.operate().rollout
    assert found.canary is not None
    return found  # type: ignore[no-any-return]  # checked above


def test_what_was_counted_before_the_first_look_is_no_evidence() -> None:
    watched = Watched()
    watched.totals["new"] = [0, 500]

    assert [watched.look() for _ in range(3)] == [None] * 3
    assert watched.look(old=(50, 0), new=(50, 0)) == "wait"


def test_one_that_fails_is_worse_and_one_that_does_not_is_as_good() -> None:
    bad, good = Watched(), Watched()
    verdicts = {(bad.look(old=(50, 0), new=(25, 25)), good.look(old=(50, 0), new=(50, 0))) for _ in range(12)}

    assert "rollback" in {first for first, _ in verdicts}
    assert not {"rollback"} & {second for _, second in verdicts}
    for _ in range(60):
        last = good.look(old=(50, 0), new=(50, 0))
    assert last == "promote"


def test_a_container_that_starts_anew_is_counted_from_there() -> None:
    watched = Watched()
    watched.look()
    watched.look(old=(5, 0), new=(5, 0))
    watched.totals["new"] = [0, 0]

    assert watched.look(old=(5, 0)) == "wait"
    assert watched.look(old=(5, 0), new=(5, 0)) == "wait"


def test_nothing_is_said_where_no_canary_is_under_way() -> None:
    watched = Watched()
    watched.look()
    watched.look(old=(5, 0), new=(5, 0))
    watched.watch.planned(KEY, None)

    assert watched.look(old=(5, 0), new=(5, 0)) is None


def test_another_canary_begins_without_the_evidence_of_the_one_before() -> None:
    watched = Watched()
    watched.look()
    assert watched.look(old=(5, 0), new=(5, 0)) == "wait"
    other = begun(count=2, room=3)[0]
    other.key(batching={"maxBatchSize": 9})
    watched.watch.planned(KEY, rollout(other))

    assert watched.watch.verdict(KEY, []) is None
