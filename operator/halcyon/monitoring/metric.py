"""Definition of a metric family, and its rendering in the Prometheus text format (version 0.0.4).

Only the standard library is used, because agents load this module.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Kind = Literal["counter", "gauge", "histogram"]
Unit = Literal["", "seconds", "bytes", "ratio"]
"""Base unit of a metric, as in Prometheus; empty for a number without a unit."""
Labels = tuple[tuple[str, str], ...]
Sample = tuple[Labels, str, float]
"""Sample of a metric family: its labels, the suffix of its name, for example `_bucket`, and its value."""
_UNITS: Final = ("seconds", "bytes", "ratio")
_SPECIAL: Final = re.compile(r'["\\\n]')
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n"}


@dataclass(frozen=True)
class Metric:
    """Definition of a metric family."""

    name: str
    """Name of the metric, with its unit, and with the suffix `_total` if it is a counter."""
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    """Names of the labels, without the label `le` of histograms."""
    known: tuple[tuple[str, ...], ...] = ()
    """Label values of the series that exist from the start with the value 0. Without an earlier value, Prometheus could
    not compute a rate for the first increase."""

    @property
    def unit(self) -> Unit:
        """Unit of the metric, from the suffix of its name."""
        plain = self.name.removesuffix("_total")
        return next((unit for unit in _UNITS if plain.endswith(f"_{unit}")), "")


def head(metric: Metric) -> str:
    """Return the HELP and TYPE lines of a metric family."""
    return f"# HELP {metric.name} {metric.meaning}\n# TYPE {metric.name} {metric.kind}\n"


def family(metric: Metric, samples: Iterable[Sample]) -> str:
    """Return the text of a metric family; empty if there are no samples, because the value is unknown."""
    lines = [line(f"{metric.name}{suffix}", label_pairs(labels), value) for labels, suffix, value in samples]
    return head(metric) + "".join(lines) if lines else ""


def line(name: str, labels: str, value: float) -> str:
    """Return the line of a sample; `labels` is a result of `label_pairs`."""
    return f"{name}{{{labels}}} {number(value)}\n" if labels else f"{name} {number(value)}\n"


def label_pairs(labels: Iterable[tuple[str, str]]) -> str:
    """Return the labels of a sample as text, without the braces."""
    return ",".join(f'{name}="{escaped(text)}"' for name, text in labels)


def number(value: float) -> str:
    """Format a value; whole numbers have no decimal point."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(value)


def escaped(text: str) -> str:
    """Return a label value with special characters escaped."""
    return _SPECIAL.sub(lambda match: _ESCAPES[match[0]], text)


def listed(names: Mapping[str, object]) -> tuple[Metric, ...]:
    """Return all metrics in a module's namespace, in the order of their definition."""
    return tuple(value for value in names.values() if isinstance(value, Metric))
