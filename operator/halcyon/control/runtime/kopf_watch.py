"""The watch of ModelDeployments by kopf. Its handler only enqueues the key of a changed object; the workers reconcile it.

kopf's change handlers, timers, daemons and indices are not used. They write annotations, need one task per object, or
take more than quadratic time (docs/decisions/0003-kopf.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import Callable, Mapping
from typing import Any

import kopf
from typing_extensions import override

from halcyon.api.authorities import accept_as_they_are
from halcyon.api.types import GROUP, PLURAL, VERSION
from halcyon.kube import errors
from halcyon.kube.client import pause
from halcyon.kube.kinds import Key

log = logging.getLogger(__name__)

RESTART_INTERVAL_S = 30.0
"""Time after which kopf is started again if it ended by itself, in seconds."""


class _GenerationDiffBase(kopf.DiffBaseStorage):
    """Storage for the change detection of kopf, which isn't used. It keeps only the generation of an object."""

    def build(self, *, body: kopf.Body, **_: Any) -> Any:
        return {"generation": body["metadata"].get("generation")}

    def fetch(self, *, body: kopf.Body) -> Any:
        return {"generation": _observed(body.get("status"))}

    def store(self, **_: Any) -> None:
        """Ignore the state of kopf's change detection, so that nothing is stored in the object."""


def _observed(status: object) -> object:
    """Return the observedGeneration of a status; None if the status has none, or isn't an object."""
    return status.get("observedGeneration") if isinstance(status, Mapping) else None


def registry(enqueue: Callable[[Key], None], kubeconfig: str | None) -> kopf.OperatorRegistry:
    """Return kopf's registry with two handlers: one adds changed objects to the queue, one provides the credentials."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=handlers)
    async def changed(namespace: str | None, name: str | None, **_: Any) -> None:
        if namespace and name:
            enqueue(Key(namespace, name))

    @kopf.on.login(registry=handlers)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        if kubeconfig is None:
            return lenient(kopf.login_with_service_account(**kwargs))
        os.environ["KUBECONFIG"] = kubeconfig  # the only way to give kopf the path
        return lenient(kopf.login_with_kubeconfig(**kwargs))

    return handlers


class _Connection(kopf.ConnectionInfo):
    """Connection that accepts CA certificates without extensions that Python's strict checks require."""

    @override
    def as_ssl_context(self) -> ssl.SSLContext:
        return accept_as_they_are(super().as_ssl_context())


def lenient(connection: kopf.ConnectionInfo | None) -> kopf.ConnectionInfo | None:
    """Return a connection that accepts the CAs of all clusters, as kubectl does; None if there is no connection."""
    return None if connection is None else _Connection(**vars(connection))


def settings() -> kopf.OperatorSettings:
    """Return kopf's settings. The code gives the reason for each setting that differs from the default."""
    options = kopf.OperatorSettings()
    options.posting.enabled = False  # the operator writes its own events
    options.peering.standalone = True  # the leader is elected with a Lease
    options.queueing.idle_timeout = 0.1  # an idle worker keeps its object in memory
    options.watching.chunk_size = 500  # parsing a complete list at once would block the event loop
    options.watching.reconnect_backoff = 1.0  # the default sends too many requests to an API server that is starting
    options.networking.connect_timeout = 10  # the default is no timeout
    options.networking.request_timeout = 60  # the default is five minutes
    options.scanning.disabled = True  # the kind is known, and the operator's role can't read CRDs
    options.persistence.diffbase_storage = _GenerationDiffBase()
    return options


async def keep(
    handlers: kopf.OperatorRegistry, *, namespaces: tuple[str, ...], identity: str, stop: asyncio.Event
) -> None:
    """Run kopf until `stop` is set, and start it again if it ends by itself.

    While kopf isn't running, only the informers report changes of ModelDeployments.
    """
    while not stop.is_set():
        try:
            await run(handlers, namespaces=namespaces, identity=identity, stop=stop)
        except errors.FrontEnded as error:
            log.warning("kopf has ended", extra={"error": str(error), "retry_s": RESTART_INTERVAL_S})
        await pause(RESTART_INTERVAL_S, stop)


async def run(
    handlers: kopf.OperatorRegistry, *, namespaces: tuple[str, ...], identity: str, stop: asyncio.Event
) -> None:
    """Run kopf until `stop` is set, in a separate thread with its own event loop.

    kopf's handlers are called in that thread. In the operator's event loop, kopf would install its own signal handlers.
    At its end, it would wait for every task that was started after it. If `namespaces` is empty, kopf watches all
    namespaces.

    Raises:
        FrontEnded: kopf has ended by itself.
    """
    logging.getLogger("kopf").setLevel(logging.WARNING)
    logging.getLogger("kopf.objects").setLevel(logging.ERROR)  # otherwise it logs a line for every event
    loop = asyncio.new_event_loop()
    # Use an asyncio.Event: with a threading.Event kopf keeps waiting after it has failed, which hides the failure.
    stop_requested = asyncio.Event()
    # Set the identity: by default kopf derives it from the user's name, which a numeric user in a container doesn't have.
    operator = kopf.operator(
        registry=handlers,
        settings=settings(),
        identity=identity,  # type: ignore[arg-type]  # a NewType of str that kopf doesn't export
        standalone=True,
        clusterwide=not namespaces,
        namespaces=list(namespaces),
        stop_flag=stop_requested,
    )

    loop.set_exception_handler(_handle_loop_error)

    def work() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(operator)

    ended = asyncio.ensure_future(asyncio.to_thread(work))
    waiting = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({ended, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        # Do this after a cancellation too, because the process can't end before its threads.
        waiting.cancel()
        with contextlib.suppress(RuntimeError):  # kopf's event loop is closed already
            loop.call_soon_threadsafe(stop_requested.set)
    try:
        await ended
    except Exception as error:
        raise errors.FrontEnded(f"kopf has stopped: {error}") from error


def _handle_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error in kopf's event loop, unless it is about a generator that is closed twice.

    kopf's watches are asynchronous generators. If a watch is cancelled while it starts, the ending event loop closes
    its generator a second time, which is harmless.
    """
    if "asyncgen" in context and isinstance(context.get("exception"), RuntimeError):
        log.debug("a watch was already closing", extra={"error": str(context["exception"])})
        return
    loop.default_exception_handler(context)
