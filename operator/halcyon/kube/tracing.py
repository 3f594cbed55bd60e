"""Traces of what a leader does, as OpenTelemetry spans by OTLP over HTTP: reconciles with their parts and requests, decisions, writes of counts.

Off unless the site names a place for them, and then nothing of OpenTelemetry is loaded.

    reconcile                    a ModelDeployment, taken from the queue
    ├── observe, apply, status   its phases
    │   └── PATCH deployments    a request to the API server
    decide                       a changed count, with the reason
    scale                        a count written to /scale
    └── PATCH modeldeployments
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

from halcyon.kube.rbac_denials import asked

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer as OpenTelemetryTracer

Value = str | int | float | bool
EXPORT_WITHIN_S = 3
"""A request to the collector; what can't be sent is dropped, and the operator goes on."""


@dataclass(frozen=True)
class TracesSite:
    """Where traces go."""

    endpoint: str
    """URL of a collector's OTLP receiver, with its path: `http://collector.observability.svc:4318/v1/traces`."""
    ratio: float = 1.0
    """Share of the traces that are sent, from 0 to 1."""


class Span(Protocol):
    """What is under way."""

    def note(self, **attributes: Value) -> None:
        """Add what was found out; `__` stands for a dot in a name."""


class Tracer(Protocol):
    """Makes spans."""

    def span(self, name: str, **attributes: Value) -> AbstractContextManager[Span]:
        """The block as a span: of what is under way, else the first of a trace."""

    def part(self, name: str, **attributes: Value) -> AbstractContextManager[Span]:
        """The block as a span where one is under way that is sent; else nothing."""

    def request(self, method: str, path: str) -> AbstractContextManager[Span]:
        """A request to the API server, as a part."""

    def close(self) -> None:
        """Send what is left. Blocks, for `EXPORT_WITHIN_S` a batch at most."""


class _Nothing:
    def note(self, **attributes: Value) -> None:
        """Nobody listens."""


_NOTHING: AbstractContextManager[Span] = nullcontext(_Nothing())


class Off:
    """No traces."""

    def span(self, name: str, **attributes: Value) -> AbstractContextManager[Span]:  # noqa: ARG002
        """Nothing."""
        return _NOTHING

    def part(self, name: str, **attributes: Value) -> AbstractContextManager[Span]:  # noqa: ARG002
        """Nothing."""
        return _NOTHING

    def request(self, method: str, path: str) -> AbstractContextManager[Span]:  # noqa: ARG002
        """Nothing."""
        return _NOTHING

    def close(self) -> None:
        """Nothing is left."""


OFF: Tracer = Off()


class Sent(Tracer):
    """Spans for a collector."""

    def __init__(self, provider: TracerProvider, tracer: OpenTelemetryTracer) -> None:
        """See `connect`."""
        self._provider = provider
        self._tracer = tracer

    @override
    @contextmanager
    def span(self, name: str, **attributes: Value) -> Iterator[Span]:
        with self._tracer.start_as_current_span(name, attributes=_dotted(attributes)) as span:
            yield _Noted(span.set_attributes)

    @override
    def part(self, name: str, **attributes: Value) -> AbstractContextManager[Span]:
        from opentelemetry.trace import get_current_span  # noqa: PLC0415  # loaded where traces are sent alone

        return self.span(name, **attributes) if get_current_span().is_recording() else _NOTHING

    @override
    def request(self, method: str, path: str) -> AbstractContextManager[Span]:
        _, right = asked(method, path, watching=False)
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
    """A tracer whose spans go to a collector, in the background; `instance` names this process."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415  # see the module
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415  # see the module
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415  # see the module
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415  # see the module
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased  # noqa: PLC0415  # see the module

    known = {"service.name": "halcyon", "service.instance.id": instance, "service.version": version}
    provider = TracerProvider(resource=Resource.create(dict(known)), sampler=ParentBased(TraceIdRatioBased(site.ratio)))
    exporter = OTLPSpanExporter(endpoint=site.endpoint, timeout=EXPORT_WITHIN_S)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Sent(provider, provider.get_tracer("halcyon", version))
