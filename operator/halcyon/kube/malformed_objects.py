"""Malformed objects, which this operator can't read as expected: each is logged once, and counted while it is malformed.

    part        finding                                                          consequence
    object      it can't be read at all                                          it is treated as absent
    fields      a ModelDeployment has fields of another type than the schema's   they are treated as absent; the spec isn't accepted
    else        a part of the operator failed to read it, which is our bug       that part skips it

Out of scope: which fields have which type (`halcyon.api.schema`).
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
    """The currently malformed objects."""

    _logged: dict[tuple[str, Key], dict[str, str]] = field(default_factory=dict)
    """The logged reason by part, for each kind and key."""

    def note(self, kind: str, key: Key, part: str, why: str, *, error: Exception | None = None) -> None:
        """Record that an object is malformed. It is logged if that, or the reason, is new."""
        logged = self._logged.setdefault((kind, key), {})
        if logged.get(part) != why:
            logged[part] = why
            context = {"kind": kind, "key": str(key), "part": part, "error": why}
            log.warning("an object has an unexpected form; it is skipped", extra=context, exc_info=error)

    def clear(self, kind: str, key: Key, part: str) -> None:
        """Record that this part can read the object, or that it is gone."""
        logged = self._logged.get((kind, key))
        if logged is not None and logged.pop(part, None) is not None and not logged:
            del self._logged[kind, key]

    def passed_over(self, kind: str, key: Key, part: str) -> PassedOver:
        """Return a context in which an error affects this object only."""
        return PassedOver(self, kind, key, part)

    def counts(self) -> dict[str, int]:
        """Return the number of malformed objects by kind."""
        return dict(sorted(Counter(kind for kind, _ in self._logged).items()))


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A context that swallows an error caused by an object of an unforeseen form."""

    malformed: Malformed
    kind: str
    key: Key
    part: str

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        """Record an error and swallow it. Anything that isn't an `Exception` (a cancellation) is passed on."""
        if error is None:
            self.malformed.clear(self.kind, self.key, self.part)
        elif isinstance(error, Exception):
            self.malformed.note(self.kind, self.key, self.part, f"{type(error).__name__}: {error}", error=error)
        return isinstance(error, Exception)


class MalformedObjectsPage(Collector):
    """The metric family for /metrics."""

    def __init__(self, malformed: Malformed) -> None:
        """`malformed` is read at each scrape."""
        self._malformed = malformed

    @override
    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(OBJECTS_MALFORMED.name, OBJECTS_MALFORMED.meaning, labels=OBJECTS_MALFORMED.labels)
        for kind, count in self._malformed.counts().items():
            family.add_metric((kind,), count)
        yield family
