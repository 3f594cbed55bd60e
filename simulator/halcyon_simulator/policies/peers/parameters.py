"""Parser of a policy's knobs, given as `key=value` strings: types, limits, and errors with a valid example.

Out of scope: the list of policies (`registry`), and the meaning of a knob (its dataclass).
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

K = TypeVar("K")


class PolicyError(ValueError):
    """A policy can't be built, because its name, the name of a knob or the value of a knob is invalid."""


@dataclass(frozen=True)
class Range:
    """Range of valid values of a number."""

    low: float
    high: float = math.inf
    above: bool = False
    """Whether `low` itself is excluded from the range."""

    def refuses(self, value: float) -> bool:
        """Return True if the value is out of range."""
        below = value <= self.low if self.above else value < self.low
        return not math.isfinite(value) or below or value > self.high

    def text(self) -> str:
        """Return the range as text, for example `above 0`."""
        if self.high < math.inf:
            return f"from {self.low:g} to {self.high:g}"
        return f"above {self.low:g}" if self.above else f"{self.low:g} or more"


Positive = Annotated[float, Range(0, above=True)]
NotNegative = Annotated[float, Range(0)]
Count = Annotated[int, Range(1)]
Window = Annotated[int, Range(0, 3600)]
"""Length of an HPA stabilization window, in seconds."""


def parsed(policy: str, knobs: type[K], params: Mapping[str, str], *, example: str) -> K:
    """Return the knobs that the parameters set, with defaults for the others.

    Args:
        policy: name of the policy, for error messages.
        knobs: frozen dataclass whose fields all have defaults, and are a Literal of strings, bool, int or float, or
            optionally None.
        params: values as strings, by knob.
        example: valid parameters, for example `target=8`.

    Raises:
        PolicyError: a knob is unknown, or its value is invalid.
    """
    kinds = get_type_hints(knobs, include_extras=True)
    for name in params:
        if name not in kinds:
            raise PolicyError(
                f"policy {policy} has no knob '{name}'; its knobs are {', '.join(kinds) or 'none'}"
                + (f"; for example {policy}:{example}" if example else "")
            )
    return knobs(**{name: _value(policy, name, kinds[name], text, example) for name, text in params.items()})


def knob_text(value: object) -> str:
    """Return the value of a knob as text that `parsed` can read."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def names(knobs: type) -> tuple[str, ...]:
    """Return the names of the knobs, in the order of the fields."""
    return tuple(field.name for field in dataclasses.fields(knobs))


def _value(policy: str, name: str, kind: Any, text: str, example: str) -> str | bool | int | float:
    stripped = text.strip()
    problem = f"policy {policy}: {name} is '{text}'"
    limits: list[Range] = []
    if get_origin(kind) in {Union, types.UnionType}:
        kind = next(k for k in get_args(kind) if k is not type(None))
    if get_origin(kind) is Annotated:
        kind, *limits = get_args(kind)
    if get_origin(kind) is Literal:
        if stripped not in get_args(kind):
            raise PolicyError(f"{problem} and must be one of {', '.join(get_args(kind))}")
        return stripped
    if kind is bool:
        if stripped not in {"true", "false"}:
            raise PolicyError(f"{problem} and must be true or false")
        return stripped == "true"
    try:
        number = int(stripped) if kind is int else float(stripped)
    except ValueError:
        expected = "a whole number" if kind is int else "a number"
        raise PolicyError(f"{problem} and must be {expected}; for example {policy}:{example}") from None
    for limit in limits:
        if limit.refuses(number):
            raise PolicyError(f"{problem} and must be {limit.text()}; for example {policy}:{example}")
    return number
