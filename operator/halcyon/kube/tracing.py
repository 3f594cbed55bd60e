"""OpenTelemetry traces of the leader's work, sent as OTLP over HTTP.

Traces are sent only if the installation configures a collector. Otherwise no OpenTelemetry module is imported.

- The span `reconcile` records a reconcile of one ModelDeployment. Its children `observe`, `apply` and `status` record
  the phases, and their children, such as `PATCH deployments`, record requests to the API server.
- The span `decide` records a change to the desired replicas, with its reason.
- The span `scale` records a write of the replicas to /scale. Its children, such as `PATCH modeldeployments`, record
  requests to the API server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

from halcyon.kube.rbac_denials import needed_right

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer as OpenTelemetryTracer

Value = str | int | float | bool
EXPORT_WITHIN_S = 3
"""Timeout of a request to the collector, in seconds. Spans that cannot be sent are dropped; the operator is not affected."""


@dataclass(frozen=True)
class TracesSite:
    """Settings for traces: the collector, and the sampling ratio."""

    endpoint: str
    """URL of the collector's OTLP receiver with its path, for example `http://collector.observability.svc:4318/v1/traces`."""
    ratio: float = 1.0
    """Share of the traces that are sent, from 0 to 1."""
    ca_file: Path | None = None
    """File with the CA certificates that are trusted for https, as PEM; None for the HTTP library's own."""


class Span(Protocol):
    """Interface to a span in progress."""

    def note(self, **attributes: Value) -> None:
        """Add attributes to the span; `__` in a name stands for a dot."""


class Tracer(Protocol):
    """Interface for creating spans."""

    def span(self, name: str, **attributes: Value) -> AbstractContextManager[Span]:
        """Return a context manager that records its block as a span.

        The span is a child of the current span, or else the root of a new trace.
        """

    def part(self, name: str, **attributes: Value) -> AbstractContextManager[Span]:
        """Return a context manager that records its block as a child of the current span.

        If there is no current span, it records nothing.
        """

    def request(self, method: str, path: str) -> AbstractContextManager[Span]:
        """Return a context manager that records a request as a child of the current span.

        If there is no current span, it records nothing.
        """

    def close(self) -> None:
        """Send the remaining spans. The method blocks for at most `EXPORT_WITHIN_S` per batch."""


class _Nothing:
    def note(self, **attributes: Value) -> None:
        """Do nothing."""


_NOTHING: AbstractContextManager[Span] = nullcontext(_Nothing())


class Off:
    """Tracer that records nothing."""

    def span(self, name: str, **attributes: Value) -> AbstractContextManager[Span]:  # noqa: ARG002
        """Return a context manager that records nothing."""
        return _NOTHING

    part = span

    def request(self, method: str, path: str) -> AbstractContextManager[Span]:  # noqa: ARG002
        """Return a context manager that records nothing."""
        return _NOTHING

    def close(self) -> None:
        """Do nothing."""


OFF: Tracer = Off()


class Sent(Tracer):
    """Tracer that sends spans to an OTLP collector."""

    def __init__(self, provider: TracerProvider, tracer: OpenTelemetryTracer) -> None:
        """Create the tracer. Call `connect` instead of this constructor."""
        self._provider = provider
        self._tracer = tracer

    @override
    @contextmanager
    def span(self, name: str, **attributes: Value) -> Iterator[Span]:
        with self._tracer.start_as_current_span(name, attributes=_dotted(attributes)) as span:
            yield _Noted(span.set_attributes)

    @override
    def part(self, name: str, **attributes: Value) -> AbstractContextManager[Span]:
        from opentelemetry.trace import get_current_span  # noqa: PLC0415  # loaded only if traces are sent

        return self.span(name, **attributes) if get_current_span().is_recording() else _NOTHING

    @override
    def request(self, method: str, path: str) -> AbstractContextManager[Span]:
        _, right = needed_right(method, path, watching=False)
        return self.part(f"{method} {right.resource}", http__request__method=method, url__path=path)

    @override
    def close(self) -> None:
        self._provider.shutdown()


@dataclass(frozen=True)
class _Noted:
    set_attributes: Callable[[Mapping[str, Value]], None]

    def note(self, **attributes: Value) -> None:
        self.set_attributes(_dotted(attributes))


def _dotted(attributes: dict[str, Value]) -> dict[str, Value]:
    return {name.replace("__", "."): value for name, value in attributes.items()}


def connect(site: TracesSite, *, instance: str, version: str) -> Tracer:
    """Return a tracer that sends spans to the collector in the background.

    `instance` is the name of this process in traces.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415  # see the module
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415  # see the module
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415  # see the module
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415  # see the module
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased  # noqa: PLC0415  # see the module

    resource = Resource.create({"service.name": "halcyon", "service.instance.id": instance, "service.version": version})
    provider = TracerProvider(resource=resource, sampler=ParentBased(TraceIdRatioBased(site.ratio)))
    ca_file = None if site.ca_file is None else str(site.ca_file)
    exporter = OTLPSpanExporter(endpoint=site.endpoint, certificate_file=ca_file, timeout=EXPORT_WITHIN_S)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Sent(provider, provider.get_tracer("halcyon", version))
