from __future__ import annotations

import pytest

from halcyon.triton.client import Endpoint, Metrics
from halcyon.triton.dead_backend import (
    EVERY_REQUEST_FAILS,
    REPORTED_AFTER_S,
    DeadBackends,
    PodRequests,
    ProbedRevision,
    Suspicion,
)
from halcyon.triton.pod_revision import revision_of
from halcyon.triton.pod_sampler import ScrapedPod


def endpoints(*pods: str, serving: bool = True) -> list[Endpoint]:
    return [
        Endpoint("a", pod, f"10.0.0.{number}", serving=serving, terminating=False) for number, pod in enumerate(pods)
    ]


def sampled(
    *, pending: int | None = 0, compute_us: int = 0, **counters: tuple[int | None, int | None] | None
) -> dict[str, ScrapedPod]:
    """Return samples by pod, from (successes, failures); None: the pod did not respond."""
    return {
        pod: ScrapedPod(
            1.0,
            None
            if both is None
            else Metrics(succeeded=both[0], backend_failed=both[1], pending=pending, compute_us=compute_us),
        )
        for pod, both in counters.items()
    }


@pytest.mark.parametrize(
    ("before", "after", "suspicion"),
    [
        ((10, 3), (10, 3), None),
        ((10, 0), (15, 1), "partly"),
        ((10, 0), (10, 1), "failing"),
        ((0, 0), (0, 40), "failing"),
        ((10, 5), (0, 1), None),
        ((None, 0), (None, 4), None),
        ((10, None), (10, None), None),
        ((10, 0), (20, 0), "idle"),
    ],
)
def test_counters_give_a_suspicion_and_never_a_proof(
    before: tuple[int | None, int | None], after: tuple[int | None, int | None], suspicion: Suspicion | None
) -> None:
    dead = DeadBackends()
    assert dead.update(endpoints("x"), sampled(x=before), 0.0) == {}
    assert dead.update(endpoints("x"), sampled(x=after), 1.0) == ({} if suspicion is None else {"x": suspicion})
    assert dead.out == frozenset()


def test_a_pod_without_a_response_is_compared_with_its_last_one() -> None:
    dead = DeadBackends()
    dead.update(endpoints("a"), sampled(a=(5, 0)), 0.0)
    assert dead.update(endpoints("a"), sampled(a=None), 1.0) == {}
    assert dead.update(endpoints("a"), sampled(a=(5, 4)), 2.0) == {"a": "failing"}


def test_a_pod_that_answers_nothing_for_a_while_is_examined() -> None:
    dead, quiet = DeadBackends(), sampled(a=(5, 0), pending=3)
    assert [dead.update(endpoints("a"), quiet, float(at)) for at in range(5)] == [
        {},
        {},
        {"a": "silent"},
        {"a": "silent"},
        {"a": "silent"},
    ]
    assert dead.quiet_s("a", 4.0) == 4.0


def test_requests_of_the_balancer_count_as_much_as_a_queue() -> None:
    dead = DeadBackends()
    for at in range(5):
        without = dead.update(endpoints("a"), sampled(a=(5, 0)), float(at), {"10.0.0.0": PodRequests(0, 0)})
    assert without == {}
    for at in range(5, 10):
        suspects = dead.update(endpoints("a"), sampled(a=(5, 0)), float(at), {"10.0.0.0": PodRequests(1, 0)})
    assert suspects == {"a": "silent"}


@pytest.mark.parametrize(("answers", "expected"), [(0, {"a": "silent"}), (1, {"a": "idle"})])
def test_a_success_before_the_response_is_no_answer(answers: int, expected: dict[str, Suspicion]) -> None:
    """Requests keep coming, and Triton counts each at once as a success."""
    dead = DeadBackends()
    for at in range(6):
        loads = {"10.0.0.0": PodRequests(3, 7 + answers * at)}
        seen = dead.update(endpoints("a"), sampled(a=(5 + at, 0)), float(at), loads)
    assert seen == expected


@pytest.mark.parametrize(("pending", "tested_at"), [(0, 3), (None, 3), (2, None)])
def test_a_pod_that_is_never_without_requests_is_tested_beside_them(pending: int | None, tested_at: int | None) -> None:
    dead, updates = DeadBackends(), []
    for at in range(6):
        loads = {"10.0.0.0": PodRequests(4, 10 * at)}
        updates.append(dead.update(endpoints("a"), sampled(a=(10 * at, 0), pending=pending), float(at), loads))
    tested = [at for at, suspects in enumerate(updates) if suspects == {"a": "idle"}]
    assert tested[:1] == ([] if tested_at is None else [tested_at])


def test_the_wait_for_a_response_is_learnt_as_an_execution() -> None:
    dead = DeadBackends()
    for at, answered in ((0.0, 7), (20.0, 7), (40.0, 8)):
        dead.update(endpoints("r-a"), sampled(**{"r-a": (5, 0)}), at, {"10.0.0.0": PodRequests(1, answered)})
    assert dead.revisions["r"].hang_s == 400.0


def test_a_first_execution_is_no_hang() -> None:
    dead = DeadBackends()
    assert not any(dead.update(endpoints("a"), sampled(a=(0, 0), pending=3), float(at)) for at in range(120))


def test_the_longest_execution_is_learnt_from_statistics_and_from_waiting() -> None:
    dead = DeadBackends()
    for at in (0.0, 120.0):
        dead.update(endpoints("r-a"), sampled(**{"r-a": (5, 0)}, pending=3), at)
    dead.update(endpoints("r-a"), sampled(**{"r-a": (6, 0)}, pending=3), 121.0)
    assert dead.revisions["r"].longest_s == 121.0
    assert dead.revisions["r"].hang_s == 1210.0
    dead = DeadBackends()
    dead.update(endpoints("r-a"), sampled(**{"r-a": (5, 0)}), 0.0)
    dead.update(endpoints("r-a"), sampled(**{"r-a": (7, 0)}, compute_us=10_000_000), 1.0)
    assert (dead.revisions["r"].longest_s, dead.revisions["r"].hang_s) == (5.0, 50.0)
    assert ProbedRevision().hang_s == 30.0


def test_a_dead_pod_is_out_until_its_container_has_restarted() -> None:
    dead = DeadBackends()
    dead.update(endpoints("a", "b"), sampled(a=(5, 1), b=(5, 0)), 0.0)
    dead.proved("a", "the stub ended", partial=False)
    assert dead.update(endpoints("a", "b"), sampled(a=(5, 9), b=(6, 0)), 1.0) == {"b": "idle"}
    assert (dead.out, dead.failures) == ({"a"}, {"a": "the stub ended"})
    dead.update([*endpoints("a", serving=False), *endpoints("b")], sampled(b=(6, 0)), 2.0)
    assert (dead.out, dead.failures) == (frozenset(), {"a": "the stub ended"}), "reported until it is ready again"
    dead.update(endpoints("a", "b"), sampled(a=(0, 0), b=(6, 0)), 3.0)
    assert (dead.out, dead.failures) == (frozenset(), {})


def test_counters_that_restarted_show_a_restarted_container() -> None:
    dead = DeadBackends()
    dead.update(endpoints("a"), sampled(a=(5, 1)), 0.0)
    dead.proved("a", "the stub ended", partial=False)
    dead.update(endpoints("a"), sampled(a=(0, 0)), 1.0)
    assert (dead.out, dead.failures) == (frozenset(), {})


def test_pods_that_still_answer_go_out_one_at_a_time() -> None:
    dead = DeadBackends()
    dead.proved("b", "one of four", partial=True)
    dead.proved("c", "one of four", partial=True)
    assert dead.out == {"b"}
    dead.proved("d", "the only one", partial=False)
    dead.proved("a", "the only one", partial=False)
    assert dead.out == {"a", "d"}
    dead.proved("b", "the other three, too", partial=False)
    assert dead.out == {"a", "b", "d"}


def test_a_pod_that_fails_every_request_is_only_reported() -> None:
    dead = DeadBackends()
    for second in range(int(REPORTED_AFTER_S) + 1):
        # A probe of another agent succeeds now and then.
        dead.update(endpoints("a"), sampled(a=(5 + second // 3, 5 * second)), float(second))
    assert dead.failures == {}
    dead.update(endpoints("a"), sampled(a=(10, 90)), REPORTED_AFTER_S + 1)
    assert (dead.out, dead.failures) == (frozenset(), {"a": EVERY_REQUEST_FAILS})
    dead.update(endpoints("a"), sampled(a=(60, 99)), REPORTED_AFTER_S + 2)
    assert dead.failures == {}


def test_one_failure_before_a_pause_is_not_reported() -> None:
    dead = DeadBackends()
    dead.update(endpoints("a"), sampled(a=(5, 0)), 0.0)
    for second in range(1, 100):
        dead.update(endpoints("a"), sampled(a=(5, 1)), float(second))
    assert dead.failures == {}


def test_pods_of_a_revision_share_the_name_of_its_replica_set() -> None:
    assert revision_of("m-a-7d9f8b6c5d-x2x4q") == revision_of("m-a-7d9f8b6c5d-9zzzz") == "m-a-7d9f8b6c5d"
