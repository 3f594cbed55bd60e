"""Objects that aren't of the form that this operator reads: each is said once, and counted while it is so.

    part        what was found                                                   what follows
    object      it can't be read at all                                          it is as if it weren't there
    fields      of a ModelDeployment: fields of another type than the schema's    they are as if they weren't there; it isn't accepted
    else        a part of the operator that read it failed, which is our fault    that part passes over it

Not here: which fields have which type (`api.shape`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType

from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from halcyon.kube.kinds import Key
from halcyon.monitoring.operator_metrics import OBJECTS_MALFORMED

log = logging.getLogger(__name__)


@dataclass
class Malformed:
    """Those that are there now."""

    _said: dict[tuple[str, Key], dict[str, str]] = field(default_factory=dict)
    """By kind and key: what was said of it, by part."""

    def note(self, kind: str, key: Key, part: str, why: str, *, error: Exception | None = None) -> None:
        """It is malformed; logged if that, or the reason, is news."""
        said = self._said.setdefault((kind, key), {})
        if said.get(part) != why:
            said[part] = why
            told = {"kind": kind, "key": str(key), "part": part, "error": why}
            log.warning("an object isn't of the form that is read; it is passed over", extra=told, exc_info=error)

    def clear(self, kind: str, key: Key, part: str) -> None:
        """This part can read it, or it is gone."""
        said = self._said.get((kind, key))
        if said is not None and said.pop(part, None) is not None and not said:
            del self._said[kind, key]

    def passed_over(self, kind: str, key: Key, part: str) -> PassedOver:
        """A block in which whatever fails is this object's affair alone."""
        return PassedOver(self, kind, key, part)

    def counts(self) -> dict[str, int]:
        """How many there are, by kind."""
        return dict(sorted(Counter(kind for kind, _ in self._said).items()))


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A block that ends quietly if an object of a shape that nobody thought of makes it fail."""

    malformed: Malformed
    kind: str
    key: Key
    part: str

    def __enter__(self) -> None:
        """Nothing is to be done before."""

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        """An error is noted, and goes no further; what isn't one (a cancellation) does."""
        if error is None:
            self.malformed.clear(self.kind, self.key, self.part)
        elif isinstance(error, Exception):
            self.malformed.note(self.kind, self.key, self.part, f"{type(error).__name__}: {error}", error=error)
        return isinstance(error, Exception)


class MalformedObjectsPage(Collector):
    """The family of /metrics."""

    def __init__(self, malformed: Malformed) -> None:
        """Read at each scrape."""
        self._malformed = malformed

    @override
    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(OBJECTS_MALFORMED.name, OBJECTS_MALFORMED.meaning, labels=OBJECTS_MALFORMED.labels)
        for kind, count in self._malformed.counts().items():
            family.add_metric((kind,), count)
        yield family
