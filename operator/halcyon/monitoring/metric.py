"""One metric family, and its form in Prometheus' text format (0.0.4). Standard library only, because agents load this module."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Kind = Literal["counter", "gauge", "histogram"]
Unit = Literal["", "seconds", "bytes", "ratio"]
"""Base unit of Prometheus; empty for a number of things, which the name states."""
Labels = tuple[tuple[str, str], ...]
Sample = tuple[Labels, str, float]
"""Labels, suffix of the name (`_bucket`), value."""
_UNITS: Final = ("seconds", "bytes", "ratio")
_SPECIAL: Final = re.compile(r'["\\\n]')
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n"}


@dataclass(frozen=True)
class Metric:
    """One metric family."""

    name: str
    """Name with its unit, and with `_total` if it is a counter."""
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    """Label names, without `le` of a histogram."""
    known: tuple[tuple[str, ...], ...] = ()
    """Label values of the series that exist from the start, at 0, because a rate needs a first value."""

    @property
    def unit(self) -> Unit:
        """Unit in the name's suffix."""
        plain = self.name.removesuffix("_total")
        return next((unit for unit in _UNITS if plain.endswith(f"_{unit}")), "")


def head(metric: Metric) -> str:
    """Return the two lines above a family's samples."""
    return f"# HELP {metric.name} {metric.meaning}\n# TYPE {metric.name} {metric.kind}\n"


def family(metric: Metric, samples: Iterable[Sample]) -> str:
    """Return a family with its samples; empty if there are none, because an unknown value has no sample."""
    lines = [line(f"{metric.name}{suffix}", label_pairs(labels), value) for labels, suffix, value in samples]
    return head(metric) + "".join(lines) if lines else ""


def line(name: str, labels: str, value: float) -> str:
    """Return one sample; `labels` is a result of `label_pairs`."""
    return f"{name}{{{labels}}} {number(value)}\n" if labels else f"{name} {number(value)}\n"


def label_pairs(labels: Iterable[tuple[str, str]]) -> str:
    """Return the text between the braces."""
    return ",".join(f'{name}="{escaped(text)}"' for name, text in labels)


def number(value: float) -> str:
    """Return the text of a value; whole numbers have no decimal point."""
    return str(int(value)) if value == int(value) else repr(value)


def escaped(text: str) -> str:
    """Return a label's value with its special characters escaped."""
    return _SPECIAL.sub(lambda match: _ESCAPES[match[0]], text)


def listed(names: Mapping[str, object]) -> tuple[Metric, ...]:
    """Return every metric of a module, in the module's order."""
    return tuple(value for value in names.values() if isinstance(value, Metric))
