"""Parser of grids such as `rows=1,2,4 x callers=1..32 x encoding=raw,binary`, which returns their points."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from halcyon_measure.errors import SettingError
from halcyon_measure.protocols.target import Encoding, SharedMemory

POINT_S = 5.0
"""Measured time of a point in seconds, unless --duration is given."""
_BESIDE_S = 2.5
"""Time for the start and the warm-up of a point, in seconds."""
MAX_POINTS = 500
MAX_S = 7200.0
_EXAMPLE = "for example 'rows=1,2,4 x callers=1..32'"
_NAME_VALUES: Mapping[str, tuple[str, ...]] = {"encoding": get_args(Encoding), "shared-memory": get_args(SharedMemory)}
"""Axes whose values are names, with the valid names."""
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_MAX_VALUES: Mapping[str, float] = {"rows": 4096, "callers": 4096, "rate": 20_000}


@dataclass(frozen=True)
class Point:
    """One load of a grid. None means that the value isn't varied and the command line option applies."""

    rows: int | None = None
    callers: int | None = None
    rate_rps: float | None = None
    encoding: Encoding | None = None
    shared_memory: SharedMemory | None = None


def points(grids: Sequence[str]) -> tuple[Point, ...]:
    """Return the points of all grids in order, without duplicates.

    Raises:
        SettingError: a grid isn't of the form AXIS=VALUES x AXIS=VALUES, or a value is out of range.
    """
    grid_points = [point for grid in grids for point in _points(grid)]
    return tuple(dict.fromkeys(grid_points))


def planned_s(grids: Sequence[str], duration_s: float | None, *, is_confirmed: bool) -> float:
    """Return the planned total time of all points of a sweep, in seconds.

    `duration_s` is the measured time of a point; None for the default.

    Raises:
        SettingError: a grid is invalid, or the sweep is large and the user hasn't confirmed it.
    """
    count = len(points(grids))
    seconds = count * ((duration_s or POINT_S) + _BESIDE_S)
    if (why := too_large(count, seconds)) and not is_confirmed:
        raise SettingError(why)
    return seconds


def too_large(count: int, seconds: float) -> str:
    """Return the reason why the user must confirm a large sweep; empty if no confirmation is needed."""
    if count <= MAX_POINTS and seconds <= MAX_S:
        return ""
    return (
        f"--sweep has {count} points, which take about {seconds / 3600:.1f} h; above {MAX_POINTS} points or "
        f"{MAX_S / 3600:g} h, add --yes, or choose fewer values"
    )


def _points(grid: str) -> list[Point]:
    axes: dict[str, list[int | float | str]] = {}
    for part in re.split(r"\s+x\s+", grid.strip()):
        name, sign, text = part.partition("=")
        name = name.strip()
        if not sign or name not in {*_MAX_VALUES, *_NAME_VALUES}:
            known = ", ".join([*_MAX_VALUES, *_NAME_VALUES])
            raise SettingError(f"--sweep {grid!r}: {part!r} must be AXIS=VALUES with an axis of {known}, {_EXAMPLE}")
        if name in axes:
            raise SettingError(f"--sweep {grid!r}: {name} is there twice; give all its values at once, {_EXAMPLE}")
        axes[name] = _values(grid, name, text)
    if "callers" in axes and "rate" in axes:
        raise SettingError(f"--sweep {grid!r}: callers make their own rate; give callers or rate, {_EXAMPLE}")
    fields = {"rate": "rate_rps", "shared-memory": "shared_memory"}
    return [
        Point(**{fields.get(name, name): value for name, value in zip(axes, values, strict=True)})  # type: ignore[arg-type]  # each is of its axis
        for values in itertools.product(*axes.values())
    ]


def _values(grid: str, axis: str, text: str) -> list[int | float | str]:
    """Return the values of an axis, which are separated by commas."""
    items = [part.strip() for part in text.split(",")]
    if axis in _NAME_VALUES:
        return [_name(grid, axis, item) for item in items]
    return [number for item in items for number in _numbers(grid, axis, item)]


def _name(grid: str, axis: str, item: str) -> str:
    if item not in _NAME_VALUES[axis]:
        raise SettingError(f"--sweep {grid!r}: {axis} is {item!r}; there are {', '.join(_NAME_VALUES[axis])}")
    return item


def _numbers(grid: str, axis: str, item: str) -> list[int | float]:
    """Return the numbers for which an item stands: one, or those of a range."""
    is_integer = axis != "rate"
    numbers = _parsed(item)
    is_valid = [0 < number <= _MAX_VALUES[axis] and (not is_integer or number == int(number)) for number in numbers]
    if not numbers or not all(is_valid):
        kind = "a whole number" if is_integer else "a number"
        raise SettingError(
            f"--sweep {grid!r}: {axis} is {item!r}; it must be {kind} above 0 and at most {_MAX_VALUES[axis]:g}, or a range "
            "such as 1..32"
        )
    return [int(number) if is_integer else number for number in numbers]


def _parsed(item: str) -> list[float]:
    """Return the number in a text, or the numbers of a range; none if it is neither.

    A range such as `1..32` stands for 1, 2, 4 and so on, and its end.
    """
    if span := _RANGE.fullmatch(item):
        low, high = int(span[1]), int(span[2])
        doubled = [low * 2**power for power in range(high.bit_length()) if low * 2**power < high] if low > 0 else []
        return [*doubled, high] if low <= high else []
    try:
        return [float(item)]
    except ValueError:
        return []
