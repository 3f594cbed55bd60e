"""The end of warm-up: blocks that agree, and loads that never settle."""

from __future__ import annotations

import numpy as np
import pytest

from halcyon_measure.engine.recorder import Recorder
from halcyon_measure.results.settling import Block, has_settled, together


def blocks(*values: tuple[int, int, float | None]) -> list[Block]:
    return [Block(*value) for value in values]


@pytest.mark.parametrize(
    ("seen", "settled"),
    [
        (blocks((100, 0, 0.1), (100, 0, 0.1)), False),
        (blocks((100, 0, 0.1), (104, 0, 0.105), (98, 0, 0.1)), True),
        (blocks((5, 0, 3.0), (100, 0, 0.1), (104, 0, 0.105), (98, 0, 0.1)), True),
        (blocks((1000, 0, 0.1), (1000, 0, 0.13), (1000, 0, 0.1)), False),
        (blocks((1000, 0, 0.1), (1500, 0, 0.1), (2000, 0, 0.1)), False),
        (blocks((100, 0, 0.1), (0, 0, None), (100, 0, 0.1)), False),
        (blocks((0, 100, None), (0, 100, None), (0, 100, None)), True),
        (blocks((2, 0, 0.5), (2, 0, 0.5), (2, 0, 0.52)), True),
        (blocks((100, 0, 0.0002), (100, 0, 0.0003), (100, 0, 0.00025)), True),
    ],
)
def test_a_load_has_settled_once_three_blocks_agree(seen: list[Block], settled: bool) -> None:
    assert has_settled(seen) is settled


@pytest.mark.parametrize(
    ("latency_s", "settled_after_s"), [(0.9, 3), (1.5, 6), (2.5, 8), (5.0, 15), (7.5, 24), (20.0, None)]
)
def test_slow_answers_of_one_caller_settle_in_longer_blocks(latency_s: float, settled_after_s: int | None) -> None:
    ends = np.arange(1, 40) * latency_s
    seen, settled_after = [], None
    for second in range(30):
        count = int(np.count_nonzero((ends > second) & (ends <= second + 1)))
        seen.append(Block(count, 0, latency_s if count else None))
        if settled_after is None and has_settled(seen):
            settled_after = second + 1
    assert settled_after == settled_after_s


def test_first_answers_after_a_silent_start_have_not_settled() -> None:
    seen = blocks(*[(0, 0, None)] * 5, (1, 0, 9.0), (0, 0, None), (1, 0, 2.0), (0, 0, None), (1, 0, 2.0))
    assert not has_settled(seen)


@pytest.mark.parametrize(("spread_s", "settled"), [(0.001, False), (0.02, True)])
def test_rising_medians_are_chance_only_if_the_answers_differ(spread_s: float, settled: bool) -> None:
    seen = [Block(50, 0, median_s, spread_s=spread_s) for median_s in (0.02, 0.0235, 0.027)]
    assert has_settled(seen) is settled


def test_load_with_random_latencies_settles_in_most_seconds() -> None:
    settled = 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        recorders = [Recorder() for _ in range(3)]
        for recorder in recorders:
            recorder.second.answered = 30
            recorder.second.latencies_s = random.lognormal(-3, 0.2, 30).tolist()
        settled += has_settled([Block.of(recorder.next_second().to_dict()) for recorder in recorders])
    assert settled >= 97


def test_a_block_of_several_processes_has_their_weighted_median() -> None:
    block = together([Block(30, 1, 0.1, spread_s=0.04), Block(10, 0, 0.2, spread_s=0.08), Block(0, 4, None)])
    assert (block.answered, block.failed) == (40, 5)
    assert block.median_s == pytest.approx(0.125)
    assert block.spread_s == pytest.approx(0.05)
