"""Sentences that are formatted only when they are read.

The operator makes thousands of decisions per second. Each has a sentence, but few of them are read.
"""

from __future__ import annotations

from decimal import Decimal

from typing_extensions import override

from halcyon.scaling.frozen import immutable


def plain(value: float, digits: int = 4) -> str:
    """Return the number with `digits` significant digits and no exponent, for example `20000` instead of `2e+04`."""
    text = f"{value:.{digits}g}"
    return f"{Decimal(text):f}" if "e" in text else text


def rounded(value: float) -> str:
    """Return a number with three significant digits and no exponent. Numbers of 1000 and more have no fraction."""
    return plain(value, 3) if value < 999.5 else f"{value:.0f}"


@immutable(frozen=True, slots=True)
class LazyText:
    """Sentence that is stored as a format string with values, and formatted when `str` is called on it."""

    form: str
    """Format string for `str.format`."""
    values: tuple[float | str, ...]

    @override
    def __str__(self) -> str:
        """Return the formatted sentence."""
        return self.form.format(*self.values)
