from __future__ import annotations

import pytest

from halcyon.balancer.runtime.server_assignment import Endpoint
from halcyon.balancer.telemetry.dead_backend import DeadBackends, Outcomes, judge
from halcyon.balancer.telemetry.sampler import ScrapedPod
from halcyon.balancer.telemetry.triton_client import Metrics

QUIET = Outcomes(10, 0)


@pytest.mark.parametrize(
    ("case", "before", "after", "serving", "last_s", "dead", "suspects"),
    [
        ("nothing failed", (10, 0), (20, 0), 2, None, False, False),
        ("nothing happened", (10, 3), (10, 3), 2, None, False, False),
        ("a failure beside successes", (10, 0), (15, 1), 2, None, False, True),
        ("a failure and no success", (10, 0), (10, 1), 2, None, True, True),
        ("many failures and no success", (10, 0), (10, 40), 2, None, True, True),
        ("the last one that serves", (10, 0), (10, 1), 1, None, False, True),
        ("another one was taken out just now", (10, 0), (10, 1), 2, 80.0, False, True),
        ("another one was taken out long enough ago", (10, 0), (10, 1), 2, 70.0, True, True),
        ("its counters restarted", (10, 5), (0, 1), 2, None, False, False),
        ("successes are not known", (None, 0), (None, 4), 2, None, False, True),
        ("failures are not known", (10, None), (10, None), 2, None, False, False),
    ],
)
def test_a_pod_is_taken_out_only_when_it_does_nothing_but_fail(
    case: str,
    before: tuple[int | None, int | None],
    after: tuple[int | None, int | None],
    serving: int,
    last_s: float | None,
    *,
    dead: bool,
    suspects: bool,
) -> None:
    pods = {"sick", "well"} if serving == 2 else {"sick"}
    verdict = judge(
        {"sick": Outcomes(*before), "well": QUIET},
        {"sick": Outcomes(*after), "well": QUIET},
        serving=pods,
        last_s=last_s,
        now=100.0,
    )
    assert (verdict.dead, bool(verdict.suspects)) == ("sick" if dead else None, suspects), case


def test_the_pod_with_the_most_failures_goes_first() -> None:
    before = dict.fromkeys("abc", Outcomes(5, 0))
    after = {"a": Outcomes(5, 2), "b": Outcomes(5, 9), "c": Outcomes(6, 0)}
    verdict = judge(before, after, serving={"a", "b", "c"}, last_s=None, now=0)
    assert verdict.dead == "b"
    assert verdict.suspects == {"a", "b"}


def test_a_pod_not_serving_or_not_seen_before_is_not_judged() -> None:
    after = {"gone": Outcomes(5, 9), "new": Outcomes(0, 9), "well": QUIET}
    verdict = judge({"gone": Outcomes(5, 0), "well": QUIET}, after, serving={"new", "well"}, last_s=None, now=0)
    assert (verdict.dead, verdict.suspects) == (None, frozenset())


def endpoints(*pods: str) -> list[Endpoint]:
    return [Endpoint("a", pod, "10.0.0.1", serving=True, terminating=False) for pod in pods]


def sampled(**failed: int | None) -> dict[str, ScrapedPod]:
    """Return samples of pods that never succeed; None: the pod did not respond."""
    return {
        pod: ScrapedPod(1.0, None if count is None else Metrics(succeeded=5, backend_failed=count))
        for pod, count in failed.items()
    }


def test_a_dead_pod_stays_out_until_it_is_gone() -> None:
    dead, there = DeadBackends(), endpoints("a", "b", "c")
    assert dead.look(there, sampled(a=0, b=0, c=0), 0.0).dead is None
    assert dead.look(there, sampled(a=4, b=0, c=0), 1.0).dead == "a"
    assert dead.look(there, sampled(a=9, b=1, c=0), 2.0).dead is None  # another one was taken out just now
    assert dead.pods == {"a"}
    assert dead.look(endpoints("b", "c"), sampled(b=1, c=0), 3.0).dead is None
    assert dead.pods == frozenset()


def test_a_pod_without_a_response_is_compared_with_its_last_one() -> None:
    dead, there = DeadBackends(), endpoints("a", "b")
    dead.look(there, sampled(a=0, b=0), 0.0)
    dead.look(there, sampled(a=None, b=0), 1.0)
    assert dead.look(there, sampled(a=4, b=0), 2.0).dead == "a"


def test_a_new_watch_keeps_the_pods_that_were_taken_out() -> None:
    dead = DeadBackends(frozenset({"a"}))
    dead.look(endpoints("a", "b", "c"), sampled(a=0, b=0, c=0), 0.0)
    assert dead.look(endpoints("a", "b", "c"), sampled(a=9, b=3, c=0), 1.0).dead == "b"
    assert dead.pods == {"a", "b"}
