"""Numbers in texts for users. Pure."""

from __future__ import annotations

from decimal import Decimal


def figure(value: float, digits: int = 3) -> str:
    """Return the number with this many significant digits, but without an exponent, and with all digits before the point."""
    text = f"{value:.{digits}g}"
    if "e" not in text:
        return text
    return f"{value:.0f}" if abs(value) >= 1 else f"{Decimal(text):f}"
