"""Batch sizes that could be worth a preference: those that take less time per row than a slightly larger one. Pure.

If a batch takes longer with each row at an even rate, full batches are always the best, and preferred sizes can't
matter. They can if times jump after some sizes, for example after each multiple of 8. The sizes are only candidates: a
configuration with them is measured like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

_DEARER = 1.1
"""Ratio of times per row from which a larger size counts as worse."""
_MAX_SIZES = 16
"""Maximum number of preferred sizes in a spec."""


def preferred_sizes(means: Mapping[int, float], most: int) -> tuple[int, ...]:
    """Return the sizes to prefer, ascending; empty if they can't matter.

    Args:
        means: seconds of a batch by its number of rows, as measured.
        most: largest batch size.
    """
    costs = {rows: seconds / rows for rows, seconds in sorted(means.items()) if 1 < rows <= most and seconds > 0}
    found = [size for size, larger in pairwise(costs) if costs[larger] > _DEARER * costs[size]]
    if not found:
        return ()
    # Triton forms no batch above the largest preferred size.
    if most in costs and costs[most] < min(costs[size] for size in found):
        found.append(most)
    return tuple(sorted(sorted(found, key=lambda size: costs[size])[:_MAX_SIZES]))
