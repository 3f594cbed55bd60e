"""The kopf front end: it logs in, watches ModelDeployments and enqueues their keys. Its handlers never do the work.

kopf's change handlers, timers, daemons and indices are not used: they write annotations, cost a task per object, or scale
worse than quadratically (docs/decisions/0003-kopf.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

import kopf

from halcyon.api.types import GROUP, PLURAL, VERSION
from halcyon.kube import errors
from halcyon.kube.kinds import Key

log = logging.getLogger(__name__)


class _GenerationDiffBase(kopf.DiffBaseStorage):
    """Storage of kopf's last-seen state without a copy of every object: nothing here depends on that state."""

    def build(self, *, body: kopf.Body, **_: Any) -> Any:
        return {"generation": body["metadata"].get("generation")}

    def fetch(self, *, body: kopf.Body) -> Any:
        return {"generation": _observed(body.get("status"))}

    def store(self, **_: Any) -> None:
        """Store nothing in the object."""


def _observed(status: object) -> object:
    """Return the observedGeneration of a status of any shape."""
    return status.get("observedGeneration") if isinstance(status, Mapping) else None


def registry(enqueue: Callable[[Key], None], kubeconfig: str | None) -> kopf.OperatorRegistry:
    """Return the handlers: one that logs in, one that enqueues."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=handlers)
    async def changed(namespace: str | None, name: str | None, **_: Any) -> None:
        if namespace and name:
            enqueue(Key(namespace, name))

    @kopf.on.login(registry=handlers)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        if kubeconfig is None:
            return kopf.login_with_service_account(**kwargs)
        os.environ["KUBECONFIG"] = kubeconfig  # kopf takes a path from nowhere else
        return kopf.login_with_kubeconfig(**kwargs)

    return handlers


def settings() -> kopf.OperatorSettings:
    """Return kopf's settings, each with the reason why it isn't the default."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False  # events are written on changes of conditions only
    chosen.peering.standalone = True  # a Lease elects the leader
    chosen.queueing.idle_timeout = 0.1  # each idle worker holds the body of its object
    chosen.watching.chunk_size = 500  # a list in one piece stalls the loop
    chosen.watching.reconnect_backoff = 1.0  # the default hammers an API server that is starting
    chosen.networking.connect_timeout = 10  # there is none by default
    chosen.networking.request_timeout = 60  # five minutes by default
    chosen.scanning.disabled = True  # the kind is known, and the role has no right to read CRDs
    chosen.persistence.diffbase_storage = _GenerationDiffBase()
    return chosen


async def run(
    handlers: kopf.OperatorRegistry, *, namespaces: tuple[str, ...], identity: str, stop: asyncio.Event
) -> None:
    """Run kopf until `stop`, in a thread with an event loop of its own; empty `namespaces` means all.

    In our loop it would install its own signal handlers, and at its end wait for every task started after it. Handlers are
    called in that thread.

    Raises:
        FrontEnded: kopf has ended by itself.
    """
    logging.getLogger("kopf").setLevel(logging.WARNING)
    logging.getLogger("kopf.objects").setLevel(logging.ERROR)  # a line for every event otherwise
    loop = asyncio.new_event_loop()
    # An asyncio event: kopf would wait for a threading.Event even after it has failed, and the failure would go unnoticed.
    asked = asyncio.Event()
    # By default kopf derives its identity from the user's name, and a numeric user in a container has none.
    operator = kopf.operator(
        registry=handlers,
        settings=settings(),
        identity=identity,  # type: ignore[arg-type]  # a NewType of str that kopf doesn't export
        standalone=True,
        clusterwide=not namespaces,
        namespaces=list(namespaces),
        stop_flag=asked,
    )

    loop.set_exception_handler(_ended_anyway)

    def work() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(operator)

    ended = asyncio.ensure_future(asyncio.to_thread(work))
    waiting = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({ended, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        # Also when we are cancelled: the process can't end before its threads have.
        waiting.cancel()
        with contextlib.suppress(RuntimeError):  # its loop is closed already
            loop.call_soon_threadsafe(asked.set)
    try:
        await ended
    except Exception as error:
        raise errors.FrontEnded(f"kopf has stopped: {error}") from error


def _ended_anyway(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Ignore a loop's error about a generator that is closing already when the ending loop closes it: nothing is lost.

    kopf's watches are generators. One that is cancelled while it starts is closed a second time by the loop that ends.
    """
    if "asyncgen" in context and isinstance(context.get("exception"), RuntimeError):
        log.debug("a watch was already closing", extra={"error": str(context["exception"])})
        return
    loop.default_exception_handler(context)
