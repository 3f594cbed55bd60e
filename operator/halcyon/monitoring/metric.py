"""One family of metrics, and how it is written in Prometheus' text format (0.0.4). The standard library only: agents load it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Kind = Literal["counter", "gauge", "histogram"]
Unit = Literal["", "seconds", "bytes", "ratio"]
"""A base unit of Prometheus; empty: things that are counted, as the name says."""
Labels = tuple[tuple[str, str], ...]
Sample = tuple[Labels, str, float]
"""Labels, what is added to the name (`_bucket`), value."""
_UNITS: Final = ("seconds", "bytes", "ratio")
_NEVER: Final = re.compile(r'["\\\n]')
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n"}


@dataclass(frozen=True)
class Metric:
    """One family."""

    name: str
    """With its unit, and `_total` where it is a counter."""
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    """Without `le` of a histogram."""
    known: tuple[tuple[str, ...], ...] = ()
    """Values of the labels whose series are there, at 0, before anything has happened: a rate needs a beginning."""

    @property
    def unit(self) -> Unit:
        """As the end of the name tells it."""
        plain = self.name.removesuffix("_total")
        return next((unit for unit in _UNITS if plain.endswith(f"_{unit}")), "")


def head(metric: Metric) -> str:
    """The two lines above a family's samples."""
    return f"# HELP {metric.name} {metric.meaning}\n# TYPE {metric.name} {metric.kind}\n"


def family(metric: Metric, samples: Iterable[Sample]) -> str:
    """A family with its samples; empty where there are none, for what isn't known has no sample."""
    lines = [line(f"{metric.name}{end}", told(labels), value) for labels, end, value in samples]
    return head(metric) + "".join(lines) if lines else ""


def line(name: str, labels: str, value: float) -> str:
    """One sample; `labels` as `told` gives them."""
    return f"{name}{{{labels}}} {number(value)}\n" if labels else f"{name} {number(value)}\n"


def told(labels: Iterable[tuple[str, str]]) -> str:
    """Labels as they stand between the braces."""
    return ",".join(f'{name}="{escaped(text)}"' for name, text in labels)


def number(value: float) -> str:
    """A value; whole ones without a point."""
    return str(int(value)) if value == int(value) else repr(value)


def escaped(text: str) -> str:
    """A label's value."""
    return _NEVER.sub(lambda found: _ESCAPES[found[0]], text)


def listed(names: Mapping[str, object]) -> tuple[Metric, ...]:
    """Every metric of a module, in the order in which they stand there."""
    return tuple(value for value in names.values() if isinstance(value, Metric))
