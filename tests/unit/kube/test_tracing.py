"""Which requests to the API server are recorded. With a real collector: tests/integration/operator/test_traces.py."""

from __future__ import annotations

from contextlib import aclosing
from types import SimpleNamespace
from typing import Any, cast

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from halcyon.control.reconcile.release_overlap import ReleaseOverlap
from halcyon.kube import kinds
from halcyon.kube.client import KubeClient
from halcyon.kube.tracing import Sent
from tests.clocks import DrivenClock

OURS, THEIRS = "halcyon-system/halcyon", "halcyon-old/halcyon"


class ApiServer:
    """An API server with one held Lease, whose watches end at once."""

    def __init__(self) -> None:
        self.rest_client = self
        self.configuration = SimpleNamespace(host="https://server")

    async def update_params_for_auth(self, *_: object) -> None:
        """Add no credentials."""

    async def request(self, *_: object, **__: object) -> Any:
        async def read() -> bytes:
            return b'{"metadata": {"resourceVersion": "7"}, "spec": {"holderIdentity": "op-0"}}'

        async def no_lines() -> Any:
            for line in ():
                yield line

        content = SimpleNamespace(iter_any=no_lines)
        return SimpleNamespace(response=SimpleNamespace(status=200, read=read, content=content, close=lambda: None))


class Recorder:
    """A client whose requests are recorded, and the spans that have ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = Sent(provider, provider.get_tracer("halcyon"))
        self.client = KubeClient(cast("Any", ApiServer()), tracer=self.tracer)

    @property
    def spans(self) -> list[tuple[str, str, str]]:
        """Name, name of the parent, and path of each span, in the order of their ends."""
        ended = self._exporter.get_finished_spans()
        names = {span.context.span_id: span.name for span in ended if span.context is not None}
        return [
            (
                span.name,
                names.get(span.parent.span_id, "") if span.parent else "",
                str((span.attributes or {}).get("url.path", "")),
            )
            for span in ended
        ]


async def test_leases_and_watches_of_the_process_are_in_no_trace() -> None:
    recorder = Recorder()
    await recorder.client.get(kinds.LEASE, "halcyon-system", "halcyon")
    await recorder.client.patch(kinds.LEASE, "halcyon-system", "halcyon", {})
    async with aclosing(recorder.client.watch(kinds.POD, since="1")) as events:
        assert [event async for event in events] == []
    assert recorder.spans == []


@pytest.mark.parametrize("named", ["", OURS])
async def test_a_reconcile_of_our_own_model_reads_no_lease(named: str) -> None:
    recorder = Recorder()
    overlap = ReleaseOverlap(recorder.client, DrivenClock(lambda: 0.0), OURS)
    resource = {"metadata": {"namespace": "team", "name": "m"}, "status": {"operator": named}}
    with recorder.tracer.span("reconcile"):
        assert await overlap.manager(resource) == ""
    assert [name for name, _, _ in recorder.spans] == ["reconcile"]


async def test_a_reconcile_reads_the_lease_of_the_release_that_a_model_names() -> None:
    recorder = Recorder()
    overlap = ReleaseOverlap(recorder.client, DrivenClock(lambda: 0.0), OURS)
    resource = {"metadata": {"namespace": "team", "name": "m", "uid": "u"}, "status": {"operator": THEIRS}}
    with recorder.tracer.span("reconcile"):
        assert await overlap.manager(resource) == THEIRS
    path = "/apis/coordination.k8s.io/v1/namespaces/halcyon-old/leases/halcyon"
    assert recorder.spans[0] == ("GET leases", "reconcile", path)
    assert [name for name, _, _ in recorder.spans] == ["GET leases", "PATCH modeldeployments/status", "reconcile"]
