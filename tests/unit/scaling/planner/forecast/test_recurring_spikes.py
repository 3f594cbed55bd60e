"""Spikes that come again."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from halcyon.scaling.planner.forecast.recurring_spikes import (
    Expected,
    SpikeMemory,
    ended,
    expected,
    since_end,
    under_way,
)

LEAD_S = 180.0
RNG = Callable[[int], np.random.Generator]


def rng(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


class Run:
    """A day of Poisson load with spikes, seen at each step."""

    def __init__(
        self, onsets: Iterable[float], *, until: float, low: float = 20, high: float = 400, length_s: float = 60,
        step_s: float = 2.0, seed: int = 1,
    ) -> None:  # fmt: skip
        self.step_s = step_s
        times = np.arange(1, int(until / step_s) + 1) * step_s
        rates = np.full(len(times), float(low))
        for onset in onsets:
            rates[(times > onset) & (times <= onset + length_s)] = high
        self.rates = rng(seed).poisson(rates * step_s) / step_s
        self.memory = SpikeMemory(at=0.0)
        self.standing: list[tuple[float, Expected]] = []
        for at, rate in zip(times.tolist(), self.rates.tolist(), strict=True):
            self.memory = self.memory.observed(at, rate)
            spike = expected(self.memory, at, LEAD_S)
            if spike is not None:
                self.standing.append((at, spike))

    @property
    def share(self) -> float:
        return len(self.standing) / len(self.rates)


def test_a_third_spike_is_expected_at_the_last_onset_plus_the_interval() -> None:
    run = Run([600, 1800], until=2900)
    first, spike = run.standing[0]
    assert first == pytest.approx(3000 - LEAD_S - 24, abs=10)
    assert spike.begin < 3000 < spike.end
    assert spike.rate == pytest.approx(400, rel=0.05)
    assert spike.end - spike.begin == pytest.approx(60 + 2 * 24, abs=10)


def test_the_next_spike_may_reach_the_highest_of_the_last_five() -> None:
    memory, heights = SpikeMemory(at=0.0), [900.0, 300.0, 400.0, 500.0, 300.0, 350.0]
    for second in range(1, 7000):
        number, into = divmod(second - 600, 1200)
        memory = memory.observed(second, heights[number] if 0 < into <= 60 and number >= 0 else 20.0)
    assert memory.bet is not None
    assert memory.bet.height == pytest.approx(500, rel=0.01)


def test_a_single_spike_causes_no_expectation() -> None:
    assert Run([600], until=4000).memory.bet is None


def test_a_spike_every_twenty_minutes_is_known_from_the_third_on() -> None:
    onsets = [600 + 1200 * i for i in range(9)]
    run = Run(onsets, until=11000)
    assert [spike.onset for spike in run.memory.spikes] == pytest.approx(onsets, abs=2)
    assert [spike.length_s for spike in run.memory.spikes] == pytest.approx([60] * 9, abs=4)
    for onset in onsets[2:]:
        ahead = [at for at, spike in run.standing if spike.begin <= onset <= spike.end and onset - 120 < at < onset]
        assert len(ahead) == pytest.approx(60, abs=1)
    assert run.share < (LEAD_S + 60 + 3 * 24) / 1200


def test_the_source_is_described_in_words() -> None:
    run = Run([600, 1800, 3000], until=4138)
    spike = expected(run.memory, 4138, LEAD_S)
    assert spike is not None
    assert spike.source == f"a spike of about {spike.rate:.0f} req/s every 1,200 s, seen 3 times, next in 62 s"


def test_the_rest_of_an_expected_spike_is_expected_during_it() -> None:
    run = Run([600, 1800, 3000], until=3030)
    spike = expected(run.memory, 3030, 10)
    assert spike is not None
    assert (spike.begin, spike.end) == pytest.approx((3000, 3060), abs=4)


def ends(lengths_s: Iterable[float]) -> list[float]:
    """When spikes of 400 req/s every 1,200 s ended as one of a row, as far as said."""
    lengths, memory, ended_at = list(lengths_s), SpikeMemory(at=0.0), []
    for second in range(2, 1200 * (len(lengths) + 1), 2):
        number, into = divmod(second - 600, 1200)
        rate = 400.0 if 0 <= number < len(lengths) and 0 < into <= lengths[number] else 20.0
        before, memory = memory, memory.observed(float(second), rate)
        if ended(before, memory):
            ended_at.append(float(second))
            assert since_end(memory, second + 1.0) is not None
    assert since_end(memory, second + 3600.0) is None
    return ended_at


def test_the_end_of_a_spike_counts_from_the_third_on() -> None:
    assert ends([60.0] * 5) == pytest.approx([600 + 1200 * k + 60 + 10 for k in (2, 3, 4)], abs=3)


def test_the_end_of_a_spike_of_another_length_proves_nothing() -> None:
    assert ends([60.0, 60.0, 120.0, 60.0, 60.0]) == []


def test_a_spike_under_way_has_not_ended() -> None:
    memory = SpikeMemory(at=0.0)
    for second in range(2, 1200 * 3 + 600, 2):
        memory = memory.observed(float(second), 400.0 if 0 < (second - 600) % 1200 <= 60 else 20.0)
    assert memory.bet is not None
    for second in range(4202, 4240, 2):
        memory = memory.observed(float(second), 400.0)
    assert memory.onset is not None
    assert since_end(memory, 4240.0) is None


def test_a_wrong_bet_stops_betting_until_two_intervals_agree() -> None:
    onsets = [600, 1800, 3700, 4900, 6100]
    assert Run(onsets[:2], until=3100).memory.bet is None, "the third did not come"
    assert Run(onsets[:4], until=5800).memory.bet is None, "1,900 s and 1,200 s do not agree"
    assert Run(onsets[:5], until=6500).memory.bet is not None, "two of 1,200 s do"


def test_a_spike_long_before_its_time_makes_the_bet_wrong() -> None:
    memory = Run([600, 1800, 2400], until=2600).memory
    assert memory.bet is None
    assert memory.wrong_at == pytest.approx(2400, abs=4)


def test_margins_follow_the_jitter_of_the_intervals() -> None:
    def margin(jitter_s: float) -> float:
        jitter = rng(4).uniform(-jitter_s, jitter_s, 12)
        bet = Run([600 + 1200 * i + float(jitter[i]) for i in range(12)], until=14400).memory.bet
        assert bet is not None
        return bet.margin_s

    assert margin(0) == 8
    assert 8 < margin(15) < margin(35) <= 120


@pytest.mark.parametrize("seed", range(3))
def test_random_spikes_are_seldom_bet_on(seed: int) -> None:
    """Less than 15 % of the time was asked for; measured 0 to 2.2 % (24 seeds of two days, lead 180 s)."""
    onsets = 300 + np.cumsum(60 + rng(100 + seed).exponential(1140, 80))
    run = Run(onsets.tolist(), until=86_400, step_s=5, seed=seed)
    assert run.share < 0.05


@pytest.mark.parametrize("rate", [0.05, 0.5, 3.0, 20.0, 300.0])
def test_poisson_noise_never_looks_like_a_spike(rate: float) -> None:
    run = Run([], until=20_000, low=rate, step_s=1)
    assert run.memory.spikes == ()
    assert run.memory.onset is None


def test_a_spike_of_a_few_requests_is_seen_once_proven() -> None:
    run = Run([600, 1800], until=2400, low=0.05, high=4, step_s=1)
    assert [spike.onset for spike in run.memory.spikes] == pytest.approx([600, 1800], abs=10)


def test_a_new_level_is_no_spike() -> None:
    memory = Run([600], until=4000, length_s=10_000).memory
    assert memory.spikes == ()
    assert memory.onset is None
    assert memory.base == pytest.approx(400, rel=0.1)


def test_a_slow_day_has_no_spikes() -> None:
    memory = SpikeMemory(at=0.0)
    for at in range(10, 86_400, 10):
        memory = memory.observed(float(at), 100 + 90 * math.sin(at / 86_400 * math.tau))
    assert memory.spikes == ()


def test_an_unobserved_time_proves_nothing_and_the_bet_moves_on() -> None:
    memory = Run([600, 1800, 3000], until=4100).memory
    resumed = memory.observed(4500, 20.0)
    assert resumed.bet is not None
    assert resumed.bet.due == pytest.approx(5400, abs=5)
    assert resumed.wrong_at is None


def test_nonsense_changes_nothing() -> None:
    memory = Run([600, 1800], until=2400).memory
    for at, rate in ((2399.0, 5.0), (2402.0, -1.0), (2402.0, math.nan), (math.nan, 5.0), (2402.0, math.inf)):
        assert memory.observed(at, rate) == memory


def test_a_clock_that_went_far_back_restarts_the_memory() -> None:
    assert Run([600], until=2000).memory.observed(100.0, 5.0) == SpikeMemory(at=100.0)


def test_the_memory_survives_json_at_any_moment() -> None:
    for until in (0.0, 30.0, 630.0, 670.0, 1900.0, 3100.0):
        memory = Run([600, 1800], until=until).memory
        text = json.dumps(memory.packed(), allow_nan=False)
        assert SpikeMemory.unpacked(json.loads(text)) == memory
        assert len(text) < 2000


def test_a_known_spike_is_under_way_from_its_rise_to_its_end() -> None:
    memory, ways = SpikeMemory(at=0.0), []
    onsets = [600.0, 1800.0, 3000.0, 4200.0]
    for second in range(1, 6300):
        due = any(onset < second <= onset + 60 for onset in onsets)
        memory = memory.observed(float(second), 400.0 if due or 5000 < second <= 5060 else 20.0)
        if under_way(memory):
            ways.append(second)
    assert 4201 <= ways[0] <= 4205, "three make a row"
    assert 4260 <= ways[-1] <= 4275, "the one at 5000 came when none was due"
