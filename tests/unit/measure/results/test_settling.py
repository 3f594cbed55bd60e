"""The end of warm-up: blocks that agree, and loads that never settle."""

from __future__ import annotations

import pytest

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


def test_a_block_of_several_processes_has_their_weighted_median() -> None:
    block = together([Block(30, 1, 0.1), Block(10, 0, 0.2), Block(0, 4, None)])
    assert (block.answered, block.failed) == (40, 5)
    assert block.median_s == pytest.approx(0.125)
