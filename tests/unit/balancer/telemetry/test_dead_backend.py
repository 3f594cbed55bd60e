from __future__ import annotations

import pytest

from halcyon.balancer.telemetry.dead_backend import Outcomes, judge

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
