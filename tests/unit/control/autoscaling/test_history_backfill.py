"""A model's past from Prometheus: joined with what was learnt here, asked for once, in the background."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.control.autoscaling.decider import Decider
from halcyon.control.autoscaling.history_backfill import RETRY_S, UNUSABLE_RETRY_S, HistoryBackfill, merged
from halcyon.control.autoscaling.planner_memory.entries import saved
from halcyon.kube.kinds import Key
from halcyon.scaling.planner.forecast.season_models import DAY
from halcyon.scaling.planner.forecast.seasonality import BIN_S, MAX_BINS, History
from halcyon.scaling.planner.outputs import PlannerMemory
from halcyon.signals.prometheus.client import PrometheusError, PrometheusUnavailable
from tests.clocks import DrivenClock
from tests.unit.control.autoscaling.autoscaler_simulation import DIGITS, OperatorReplica
from tests.unit.kube.virtual_time import VirtualTime, run

OTHER = Key("team", "other")
Bins = dict[int, float]


def history(bins: Iterable[float | None], *, end: int) -> History:
    """The past, whose last bin is the one before `end`."""
    return History.of(bins, end=end * BIN_S)


def observed_history(bins: Bins, *, until: float, rate: float = 0.0) -> History:
    """As a planner sees it: these whole bins, and `rate` in the open one until then; in seconds since the epoch."""
    observed = History()
    for number, mean in sorted(bins.items()):
        for quarter in range(1, 5):
            at = number * BIN_S + quarter * BIN_S / 4
            observed = observed.with_sample(at, requests=mean * BIN_S / 4, seconds=BIN_S / 4)
    begin = until // BIN_S * BIN_S
    if until > max(begin, observed.until):
        observed = observed.with_sample(until, requests=rate * (until - begin), seconds=until - begin)
    return observed


def by_number(history: History) -> dict[int, float | None]:
    return {history.open - len(history.bins) + index: mean for index, mean in enumerate(history.bins)}


def known_bins(history: History) -> dict[int, float]:
    return {number: mean for number, mean in by_number(history).items() if mean is not None}


def test_the_past_goes_before_what_was_seen_since() -> None:
    past = history([1, 2, 3], end=1000)
    ours = observed_history({1000: 4, 1001: 5}, until=1002 * BIN_S + 60, rate=6)
    joined = merged(past, ours)

    assert known_bins(joined) == {997: 1, 998: 2, 999: 3, 1000: 4, 1001: 5}
    assert (joined.open, joined.until) == (1002, 1002 * BIN_S + 60)
    assert (joined.requests, joined.seconds) == (pytest.approx(360), pytest.approx(60))


def test_a_common_bin_is_ours_and_an_unknown_bin_is_the_pasts() -> None:
    past = history([1, 1, 1, 1, 1], end=1000)
    ours = observed_history({996: 7, 998: 9}, until=1000 * BIN_S + 10)

    assert known_bins(merged(past, ours)) == {995: 1, 996: 7, 997: 1, 998: 9, 999: 1}


def test_an_unknown_bin_stays_unknown_and_is_no_idle_time() -> None:
    joined = merged(history([1, 2], end=1000), observed_history({1003: 4}, until=1004 * BIN_S + 10))

    assert by_number(joined) == {998: 1, 999: 2, 1000: None, 1001: None, 1002: None, 1003: 4}


def test_a_model_last_reported_before_the_past_ends_has_all_of_it() -> None:
    ours = observed_history({997: 5}, until=998 * BIN_S + 10, rate=3)
    joined = merged(history([1, 2, 3, 4], end=1000), ours)

    assert known_bins(joined) == {996: 1, 997: 5, 998: 3, 999: 4}
    assert (joined.open, joined.seconds) == (1000, 0)


def test_the_merge_with_an_empty_history_is_the_other_history() -> None:
    past, ours = history([1, 2], end=1000), observed_history({1000: 4}, until=1001 * BIN_S + 10)

    assert merged(past, History()) == past
    assert merged(History(), ours) == ours


def test_the_seasons_are_those_that_the_whole_past_would_have_taught() -> None:
    def usual(number: int) -> float:
        return 20.0 + 10.0 * math.sin(2 * math.pi * number / DAY)

    end = 1000 * DAY
    past = history([usual(number) for number in range(end - 3 * DAY, end)], end=end)
    ours = observed_history({number: usual(number) for number in range(end - 5, end + 3)}, until=(end + 3) * BIN_S + 30)
    complete = history([usual(number) for number in range(end - 3 * DAY, end + 3)], end=end + 3)

    joined = merged(past, ours)
    assert joined.bins == complete.bins
    assert joined.fit.choices == complete.fit.choices
    assert joined.fit.choices[0] is not None


def test_a_merged_history_keeps_no_more_than_a_history_does() -> None:
    past = History(bins=(1.0,) * MAX_BINS, open=1000 + MAX_BINS, until=(1000 + MAX_BINS) * BIN_S)
    joined = merged(past, observed_history({1000 + MAX_BINS: 4}, until=(1001 + MAX_BINS) * BIN_S + 10))

    assert len(joined.bins) == MAX_BINS
    assert joined.bins[-1] == 4


_RATES = st.one_of(st.none(), st.integers(0, 50).map(float))


@given(
    past=st.lists(_RATES, min_size=1, max_size=20),
    bins=st.dictionaries(st.integers(990, 1012), st.integers(0, 50).map(float), max_size=8),
    end=st.integers(995, 1010),
)
def test_each_bin_is_ours_or_else_the_past_s(past: list[float | None], bins: Bins, end: int) -> None:
    before, ours = history(past, end=end), observed_history(bins, until=(max(bins, default=990) + 1) * BIN_S + 1)
    joined = merged(before, ours)

    assert known_bins(joined) == pytest.approx(known_bins(before) | known_bins(ours))
    assert joined.open == max(before.open, ours.open)


# Asking


class ScriptedAnswers:
    """Answers by model, one after the other; the last one again and again."""

    def __init__(self, time: VirtualTime, **answers: list[History | Exception | None]) -> None:
        self.time, self.answers = time, answers
        self.when: dict[str, list[float]] = {}

    async def __call__(self, namespace: str, name: str) -> History | None:
        assert namespace == "team"
        times = self.when.setdefault(name, [])
        times.append(self.time())
        await asyncio.sleep(0.2)
        answers = self.answers[name]
        answer = answers[min(len(times), len(answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def ask_for(backfill: HistoryBackfill, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await backfill.run(lambda _: History(), lambda *_: pytest.fail("nothing was there to be learnt"))


def test_an_unknown_past_is_requested_once() -> None:
    async def scenario(time: VirtualTime) -> None:
        answers = ScriptedAnswers(time, digits=[None], other=[None])
        backfill = HistoryBackfill(answers, clock=DrivenClock(time))
        backfill.enqueue(DIGITS)
        backfill.enqueue(OTHER)
        await ask_for(backfill, 10 * UNUSABLE_RETRY_S)
        assert answers.when == {"digits": [0.0], "other": [pytest.approx(0.2)]}

    run(scenario)


def test_every_query_waits_while_prometheus_is_down() -> None:
    async def scenario(time: VirtualTime) -> None:
        answers = ScriptedAnswers(
            time, digits=[PrometheusUnavailable("away"), PrometheusUnavailable("away"), None], other=[None]
        )
        backfill = HistoryBackfill(answers, clock=DrivenClock(time))
        backfill.enqueue(DIGITS)
        backfill.enqueue(OTHER)
        await ask_for(backfill, 10 * RETRY_S)
        turns = [0.0, RETRY_S + 0.4, 2 * RETRY_S + 0.6]
        assert answers.when == {"digits": pytest.approx(turns), "other": [pytest.approx(RETRY_S + 0.2)]}

    run(scenario)


def test_a_query_that_always_times_out_keeps_no_other_waiting() -> None:
    async def scenario(time: VirtualTime) -> None:
        answers = ScriptedAnswers(time, digits=[PrometheusUnavailable("no response within 10 s")], other=[None])
        backfill = HistoryBackfill(answers, clock=DrivenClock(time))
        backfill.enqueue(DIGITS)
        backfill.enqueue(OTHER)
        await ask_for(backfill, 3 * RETRY_S)
        assert answers.when["other"] == [pytest.approx(RETRY_S + 0.2)]

    run(scenario)


def test_a_refused_query_delays_no_other_and_is_repeated_much_later() -> None:
    async def scenario(time: VirtualTime) -> None:
        answers = ScriptedAnswers(time, digits=[PrometheusError("2 series"), None], other=[None])
        backfill = HistoryBackfill(answers, clock=DrivenClock(time))
        backfill.enqueue(DIGITS)
        backfill.enqueue(OTHER)
        await ask_for(backfill, 3 * UNUSABLE_RETRY_S)
        assert answers.when == {"digits": pytest.approx([0.0, UNUSABLE_RETRY_S + 0.2]), "other": [pytest.approx(0.2)]}

    run(scenario)


def test_a_past_that_cannot_be_merged_stops_no_other() -> None:
    async def scenario(time: VirtualTime) -> None:
        answers = ScriptedAnswers(time, digits=[history([1.0], end=1000)], other=[None])
        backfill = HistoryBackfill(answers, clock=DrivenClock(time))
        backfill.enqueue(DIGITS)
        backfill.enqueue(OTHER)

        def known(_: Key) -> History:
            raise ArithmeticError

        with suppress(TimeoutError):
            async with asyncio.timeout(10):
                await backfill.run(known, lambda *_: None)
        assert list(answers.when) == ["digits", "other"]

    run(scenario)


def test_a_later_model_does_not_wait_for_a_refused_one() -> None:
    async def scenario(time: VirtualTime) -> None:
        answers = ScriptedAnswers(time, digits=[PrometheusError("2 series")], other=[None])
        backfill = HistoryBackfill(answers, clock=DrivenClock(time))
        backfill.enqueue(DIGITS)
        asyncio.get_running_loop().call_later(100, backfill.enqueue, OTHER)
        await ask_for(backfill, 200)
        assert answers.when == {"digits": [0.0], "other": [100.0]}

    run(scenario)


def test_a_deleted_model_is_not_queried_and_its_answer_is_dropped() -> None:
    async def scenario(time: VirtualTime) -> None:
        answers = ScriptedAnswers(time, digits=[history([1.0], end=1000)], other=[None])
        backfill = HistoryBackfill(answers, clock=DrivenClock(time))
        backfill.enqueue(DIGITS)
        backfill.enqueue(OTHER)
        backfill.forget(OTHER)
        asyncio.get_running_loop().call_later(0.1, backfill.forget, DIGITS)
        await ask_for(backfill, 1000)
        assert answers.when == {"digits": [0.0]}

    run(scenario)


# Deciding with it


class Model:
    """One model that is decided for, on a site with a Prometheus."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.world = OperatorReplica(lambda: self.now)
        self.world.model(replicas=2)
        self.queried: list[Key] = []
        self.deciding = self.another()

    def another(self) -> Decider:
        """As of a process that has just begun."""
        return Decider(self.world.sensing, HistoryBackfill(self._ask, clock=DrivenClock(lambda: self.now)))

    async def _ask(self, namespace: str, name: str) -> History | None:
        self.queried.append(Key(namespace, name))
        end = int(self.world.sensing.epoch.at(self.now) // BIN_S)
        return history([7.0] * 600, end=end)

    def hear(self, seconds: int) -> None:
        """A record and a decision every second."""
        for _ in range(seconds):
            self.now += 1
            self.world.speak(DIGITS, arrived=20)
            self.deciding.decide(DIGITS, self.world.specs[DIGITS], self.world.scaler.models[DIGITS].actuator, self.now)

    def learn(self) -> None:
        """Let the asker do what there is to do; every answer comes at once."""

        async def until_learnt() -> None:
            done = asyncio.Event()

            def learn(key: Key, past: History) -> None:
                self.deciding.learn(key, past)
                done.set()

            assert self.deciding.histories is not None
            task = asyncio.create_task(self.deciding.histories.run(self.deciding.history, learn))
            async with asyncio.timeout(30):
                await done.wait()
            task.cancel()

        asyncio.run(until_learnt())

    def memory(self) -> PlannerMemory:
        memory = self.deciding.memory(DIGITS)
        assert memory is not None
        return memory


def test_a_new_planner_gets_the_past_and_keeps_its_own_memory() -> None:
    model = Model()
    model.hear(20)
    before = model.memory()
    model.learn()
    after = model.memory()
    model.hear(5)

    assert model.queried == [DIGITS]
    assert (len(before.history.bins), len(after.history.bins)) == (0, 600)
    assert after.history.requests == pytest.approx(before.history.requests)
    assert after.history.until == before.history.until
    assert (after.arrivals, after.capacity, after.hold) == (before.arrivals, before.capacity, before.hold)
    assert model.memory().history.requests > after.history.requests


@pytest.mark.parametrize(("bins", "asks"), [(0, True), (DAY - 1, True), (DAY, False)])
def test_a_model_with_less_than_a_day_of_memory_requests_the_past(bins: int, *, asks: bool) -> None:
    model = Model()
    end = int(model.world.sensing.epoch.at(model.now) // BIN_S)
    kept = PlannerMemory(history=history([3.0] * bins, end=end))
    model.deciding.restore({DIGITS: saved(model.world.sensing.uid(DIGITS), kept, at=0.0)})
    model.hear(5)
    if asks:
        model.learn()

    histories = model.deciding.histories
    assert histories is not None
    assert histories._due == {}
    assert model.queried == ([DIGITS] if asks else [])
    # What we have seen ourselves stays.
    assert known_bins(model.memory().history).get(end - 1) == (3.0 if bins else 7.0)


def test_a_deleted_model_wants_no_history() -> None:
    model = Model()
    model.hear(1)
    model.deciding.forget(DIGITS)

    assert model.deciding.histories is not None
    assert model.deciding.histories._due == {}
    assert model.deciding.history(DIGITS) is None
