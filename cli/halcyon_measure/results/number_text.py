"""Formatting of numbers as text, the same in every view of a document. Pure."""

from __future__ import annotations

import math

from halcyon_measure.results.figure import Figure

NONE = "-"


def number(value: float | None) -> str:
    """Format a number with about three significant digits; a hyphen for None."""
    if value is None:
        return NONE
    if not math.isfinite(value):  # a ratio in percent may be too large
        return f"{value:g}"
    if value == int(value) or abs(value) >= 1000:
        return f"{value:.0f}"
    if abs(value) < 1:
        return f"{value:.{2 if abs(value) < 0.01 else 3}g}"
    return f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f}"


def significant(value: float, digits: int) -> str:
    """Format a number with `digits` significant digits, and never with an exponent: `1240`, not `1.24e+03`."""
    text = f"{value:.{digits}g}"
    return f"{float(text):.0f}" if "e+" in text else text


def signed_percent(ratio: float | None) -> str:
    """Format a relative difference as a percentage with a sign, for example `+1.5 %`; a hyphen for None."""
    return NONE if ratio is None else f"{'-' if ratio < 0 else '+'}{number(round(100 * abs(ratio), 3))} %"


def count_text(count: int | None, noun: str) -> str:
    """Format a count with its noun, in the plural unless the count is 1, for example `32 callers`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def interval(figure: Figure) -> str:
    """Return the figure's 95 % interval in brackets; empty if there is none."""
    return f"[{number(figure.interval[0])}, {number(figure.interval[1])}]" if figure.interval else ""


def quantity(figure: Figure) -> str:
    """Format the figure's value with its unit, or return the reason why it wasn't measured."""
    if figure.value is None:
        return f"not measured: {figure.reason}"
    if figure.unit == "ratio":
        return f"{number(round(100 * figure.value, 3))}\u00a0%"
    return f"{number(figure.value)}\u00a0{UNITS.get(figure.unit, figure.unit)}"


UNITS = {"us": "µs"}
