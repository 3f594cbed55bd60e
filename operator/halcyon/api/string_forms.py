"""Forms of strings that have a name, such as durations: their patterns, and examples for error messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Form:
    """Form of a string."""

    kind: str
    """Name of the form with its article, for example `a duration`."""
    examples: tuple[str, ...]
    """Valid strings."""

    @property
    def text(self) -> str:
        """Examples for an error message, for example `for example 500m, 2 or 4Gi`."""
        return f"for example {alternatives(self.examples)}"


def alternatives(words: Sequence[str]) -> str:
    """Return the words as alternatives, for example `1s, 2s or 3s`."""
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _cidr_pattern() -> str:
    """Return a pattern that matches exactly the valid CIDR ranges.

    CEL's functions for CIDR ranges cannot be used, because the oldest API server that the chart supports does not have them.
    """
    octet = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
    group = "[0-9a-f]{1,4}"
    # Addresses with `::` have n groups before it, and at most 7 - n after it.
    short = [f"({group}:){{{n}}}(:{group}){{1,{7 - n}}}" for n in range(1, 7)]
    v6 = "|".join([f"({group}:){{7}}{group}", f"({group}:){{1,7}}:", *short, f":((:{group}){{1,7}}|:)"])
    return rf"^(({octet}\.){{3}}{octet}/(3[0-2]|[12]?[0-9])|({v6})/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))$"


DURATION: Final = r"^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?([0-9]{1,6}ms)?([0-9]{1,6}us)?$"
QUANTITY: Final = r"^([0-9]{1,15}(\.[0-9]{0,9})?|\.[0-9]{1,9})([eE][+-]?[0-9]{1,2}|[numkMGTPE]|[KMGTPE]i)?$"
TIME: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt]([0-9]{2}:){2}[0-9]{2}([.,][0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
)
CIDR: Final = _cidr_pattern()
FORMS: Final = {
    DURATION: Form("a duration", ("500us", "2ms", "30s", "1m30s", "2h")),
    QUANTITY: Form("a quantity", ("500m", "2", "4Gi")),
    TIME: Form("a time", ("2026-12-01T06:00:00Z",)),
    CIDR: Form("a range of IP addresses", ("10.0.0.0/8", "fd00::/8")),
}
"""Form of the strings that match a pattern."""
