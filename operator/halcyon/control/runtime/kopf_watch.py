"""kopf, the front: it logs in, watches ModelDeployments and hands over keys. Its handlers never do the work.

Its change handlers, timers, daemons and indices are left out: they write annotations, cost a task per object, or grow
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
    """kopf's memory of what it has seen, without a copy of every object: nothing here depends on it."""

    def build(self, *, body: kopf.Body, **_: Any) -> Any:
        return {"generation": body["metadata"].get("generation")}

    def fetch(self, *, body: kopf.Body) -> Any:
        return {"generation": _observed(body.get("status"))}

    def store(self, **_: Any) -> None:
        """Nothing is stored in the object."""


def _observed(status: object) -> object:
    """Of a status of any shape."""
    return status.get("observedGeneration") if isinstance(status, Mapping) else None


def registry(enqueue: Callable[[Key], None], kubeconfig: str | None) -> kopf.OperatorRegistry:
    """The handlers: one that logs in, one that enqueues."""
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
    """Kopf's settings, each with the reason why it isn't the default."""
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
    """Run kopf until `stop`, in a thread with a loop of its own; `namespaces` are all where there are none.

    In ours it would take the signals for itself, and at its end wait for every task that has begun after it. Handlers are
    called in that thread.

    Raises:
        FrontEnded: kopf has ended by itself.
    """
    logging.getLogger("kopf").setLevel(logging.WARNING)
    logging.getLogger("kopf.objects").setLevel(logging.ERROR)  # a line for every event otherwise
    loop = asyncio.new_event_loop()
    # Of asyncio: kopf would wait for a threading.Event also after it has failed, and nobody would know.
    asked = asyncio.Event()
    # By default kopf makes its identity of the user's name, and a numeric user in a container has none.
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
        # When we are cancelled, too: the process can't end before its threads have.
        waiting.cancel()
        with contextlib.suppress(RuntimeError):  # its loop is closed already
            loop.call_soon_threadsafe(asked.set)
    try:
        await ended
    except Exception as error:
        raise errors.FrontEnded(f"kopf has ended: {error}") from error


def _ended_anyway(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What a loop says of a generator that it closes at its end while the generator is closing itself: nothing is lost by that.

    kopf's watches are generators, and one that is cancelled while it begins is closed a second time by the loop that ends.
    """
    if "asyncgen" in context and isinstance(context.get("exception"), RuntimeError):
        log.debug("a watch was closing already", extra={"error": str(context["exception"])})
        return
    loop.default_exception_handler(context)
