"""Detection of the end of warm-up: rate and median latency of successive blocks no longer change. Pure.

A block is one second, or longer if requests end less often than once a second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Self

BLOCKS = 3
"""Number of successive blocks that must agree."""
_BLOCK_S = (1, 2, 4, 8)
"""Lengths of a block in seconds. The shortest is used in which each of the last blocks has a request that ended."""
TOLERANCE = 0.1
"""Maximum relative difference between the medians, and between the rates, of the blocks."""
_FEW = 100
"""Minimum number of answers in a block for its median to count as exact."""
_LEAST_SPREAD = 5
"""Minimum number of answers in a block for a meaningful interquartile range."""
_SMALL_S = 0.0002
"""Maximum difference between medians that counts as noise of the client, in seconds."""


@dataclass(frozen=True)
class Block:
    """Counts and median latency of the requests that ended in one second, over all processes."""

    answered: int
    failed: int
    median_s: float | None
    """Median latency of the answers in seconds; None if there were none."""
    late: int = 0
    """Number of answers that missed the objective; 0 if there is no objective."""
    spread_s: float = 0.0
    """Interquartile range of the answers' latencies, in seconds."""

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Self:
        """Return the block for the event `second` of a worker."""
        return cls(event["answered"], event["failed"], event["median_s"], event["late"], event["spread_s"])


def together(parts: Sequence[Block]) -> Block:
    """Return one block for the blocks of several processes.

    Its counts are their sums. Its median and its spread are their means, weighted by the number of answers.
    """
    answered = sum(part.answered for part in parts)
    weighted = sum(part.median_s * part.answered for part in parts if part.median_s is not None)
    return Block(
        answered,
        sum(part.failed for part in parts),
        weighted / answered if answered else None,
        sum(part.late for part in parts),
        sum(part.spread_s * part.answered for part in parts) / max(answered, 1),
    )


def has_settled(blocks: Sequence[Block]) -> bool:
    """Return True if the last `BLOCKS` blocks agree in rate and median, within `TOLERANCE` or within chance.

    `blocks` has one block for each second. A load whose requests all fail also counts as settled, because failures are a result.
    """
    last = next((longer for block_s in _BLOCK_S if (longer := _last_blocks(blocks, block_s))), [])
    if not last:
        return False
    ended = [block.answered + block.failed for block in last]
    mean = sum(ended) / len(ended)
    # Counts of random arrivals differ by their square root.
    if max(ended) - min(ended) > max(TOLERANCE * mean, 4 * math.sqrt(mean)):
        return False
    medians = [block.median_s for block in last if block.median_s is not None]
    if not medians:
        return True
    if len(medians) < len(last):
        return False
    middle = median(medians)
    # A median of few answers is itself uncertain, more so if they differ much.
    fewest = min(block.answered for block in last)
    chance = 2.5 * middle / math.sqrt(fewest) if fewest < _FEW else 0.0
    if fewest >= _LEAST_SPREAD:
        chance = min(chance, 4 * max(block.spread_s for block in last) / math.sqrt(fewest))
    return max(medians) - min(medians) <= max(TOLERANCE * middle, _SMALL_S, chance)


def _last_blocks(blocks: Sequence[Block], block_s: int) -> list[Block]:
    """Return the last `BLOCKS` blocks of this length in seconds.

    The result is empty if there are fewer, or if no request ended in one of them.
    """
    if len(blocks) < BLOCKS * block_s:
        return []
    starts = range(len(blocks) - BLOCKS * block_s, len(blocks), block_s)
    last = [together(blocks[start : start + block_s]) for start in starts]
    return last if all(block.answered + block.failed for block in last) else []
