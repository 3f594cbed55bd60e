"""Record of malformed objects, which the operator cannot parse as expected.

Each malformed object is logged once, and counted while it is malformed. The consequence depends on the part:

- object: the object cannot be parsed. It is treated as absent.
- fields: fields of a ModelDeployment have other types than the schema requires. These fields are treated as absent, and
  the spec is not accepted.
- any other part: this part of the operator failed on the object, which is a bug. It skips the object.

Out of scope: the types of the fields (`halcyon.api.schema`).
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
    """Record of the objects that are malformed now."""

    _logged: dict[tuple[str, Key], dict[str, str]] = field(default_factory=dict)
    """Reason that was logged for each malformed part of an object, by the object's kind and key."""

    def note(self, kind: str, key: Key, part: str, why: str, *, error: Exception | None = None) -> None:
        """Record that an object is malformed. A log line is written if this object or the reason is new."""
        logged = self._logged.setdefault((kind, key), {})
        if logged.get(part) != why:
            logged[part] = why
            context = {"kind": kind, "key": str(key), "part": part, "error": why}
            log.warning("an object has an unexpected form; it is skipped", extra=context, exc_info=error)

    def clear(self, kind: str, key: Key, part: str) -> None:
        """Remove the record of this part of an object, because the part is valid now."""
        logged = self._logged.get((kind, key))
        if logged is not None and logged.pop(part, None) is not None and not logged:
            del self._logged[kind, key]

    def forget(self, kind: str, key: Key) -> None:
        """Remove the records of all parts of an object that was deleted."""
        self._logged.pop((kind, key), None)

    def skipping_errors(self, kind: str, key: Key, part: str) -> SkippedErrors:
        """Return a context manager that records an error in its block as a malformed object and suppresses it."""
        return SkippedErrors(self, kind, key, part)

    def counts(self) -> dict[str, int]:
        """Return the number of malformed objects by kind."""
        return dict(sorted(Counter(kind for kind, _ in self._logged).items()))


@dataclass(frozen=True, slots=True)
class SkippedErrors:
    """Context manager that suppresses errors which a malformed object causes."""

    malformed: Malformed
    kind: str
    key: Key
    part: str

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        """Record and suppress an `Exception`. Other errors, for example a cancellation, are not suppressed."""
        if error is None:
            self.malformed.clear(self.kind, self.key, self.part)
        elif isinstance(error, Exception):
            self.malformed.note(self.kind, self.key, self.part, f"{type(error).__name__}: {error}", error=error)
        return isinstance(error, Exception)


class MalformedObjectsPage(Collector):
    """Prometheus collector for the number of malformed objects."""

    def __init__(self, malformed: Malformed) -> None:
        """Create the collector. At each scrape, it reads the numbers from `malformed`."""
        self._malformed = malformed

    @override
    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(OBJECTS_MALFORMED.name, OBJECTS_MALFORMED.meaning, labels=OBJECTS_MALFORMED.labels)
        for kind, count in self._malformed.counts().items():
            family.add_metric((kind,), count)
        yield family
