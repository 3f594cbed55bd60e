"""Candidates for preferred batch sizes: sizes that take less time per row than a slightly larger size. Pure.

If the time of a batch grows evenly with its rows, full batches are always best, and preferred sizes make no difference.
They matter if the time jumps after some sizes, for example after each multiple of 8. The sizes are only candidates: a
configuration with preferred sizes is measured like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

_MIN_COST_RATIO = 1.1
"""Ratio of the times per row of a larger and a smaller batch size above which the smaller size is preferred."""
_MAX_SIZES = 16
"""Maximum number of preferred batch sizes in a spec."""


def preferred_sizes(means: Mapping[int, float], most: int) -> tuple[int, ...]:
    """Return the batch sizes to prefer, in ascending order; empty if preferred sizes would make no difference.

    Args:
        means: measured time of a batch in seconds, by its number of rows.
        most: largest batch size.
    """
    costs = {rows: seconds / rows for rows, seconds in sorted(means.items()) if 1 < rows <= most and seconds > 0}
    sizes = [size for size, larger in pairwise(costs) if costs[larger] > _MIN_COST_RATIO * costs[size]]
    if not sizes:
        return ()
    # Triton forms no batch above the largest preferred size.
    if most in costs and costs[most] < min(costs[size] for size in sizes):
        sizes.append(most)
    return tuple(sorted(sorted(sizes, key=lambda size: costs[size])[:_MAX_SIZES]))
