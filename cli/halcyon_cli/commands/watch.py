"""`halcyon get NAME -w`: the tree drawn anew whenever the API server tells of a change. Nothing is polled.

The objects are kept by the operator's own informers: they list again where a watch was lost, and know what is gone. Not here: what
is told (`tree`), how it looks (`drawing`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from abc import abstractmethod
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Self

from typing_extensions import override

from halcyon.kube import kinds
from halcyon.kube.client import KubeClient, Object
from halcyon.kube.informer import Informer
from halcyon.kube.kinds import Key
from halcyon.render import names
from halcyon_cli.arguments.options import Output, emit
from halcyon_cli.kube.client import Cluster
from halcyon_cli.kube.inventory import SHOWN, Inventory, assemble, look

CALM_S = 0.2
"""Changes that come within this time are drawn together."""
AGES_S = 10.0
"""Ages are drawn anew after this long at the latest."""


def follow(cluster: Cluster, name: str, output: Output, limit_s: float | None) -> int:
    """Draw the tree until the time is over, the model is gone, or somebody interrupts; gives the exit status.

    On a terminal the page stays in place. Elsewhere a page is printed whenever it says something new.

    Raises:
        ClusterError: where there is no such model, or no access.
    """
    first = look(cluster, name)  # with it come the errors that say what to do
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_follow(cluster, name, first, output, limit_s))
    return 0


async def _follow(cluster: Cluster, name: str, first: Inventory, output: Output, limit_s: float | None) -> None:
    screen = _Screen(output) if sys.stdout.isatty() else _Log(output)
    with screen, contextlib.suppress(TimeoutError):
        screen.show(first, "")
        async with asyncio.timeout(limit_s):
            async for seen, trouble in changes(cluster, name, first):
                if seen is None:
                    screen.say(f"ModelDeployment {name} was deleted")
                    return
                screen.show(seen, trouble)


async def changes(cluster: Cluster, name: str, first: Inventory) -> AsyncIterator[tuple[Inventory | None, str]]:
    """What is there, with every change, and what keeps the cluster from being watched; None once the model is gone."""
    key, changed, trouble = Key(cluster.namespace, name), asyncio.Event(), _Trouble()
    client = await _connect(cluster)
    selector = f"{names.OWNER_LABEL}={name}"
    model = Informer(client, kinds.MODEL_DEPLOYMENT, namespaces=(key.namespace,))
    # What could not be read at first would only be refused again and again.
    readable = [kind for kind in SHOWN if not any(said.startswith(f"{kind.plural} ") for said in first.hidden)]
    others = {kind: Informer(client, kind, selector=selector, namespaces=(key.namespace,)) for kind in readable}
    every = [model, *others.values()]
    for informer in every:
        informer.listeners.append(lambda *_: changed.set())
    trouble.changed = changed
    log = logging.getLogger(Informer.__module__)
    log.addHandler(trouble)
    log.propagate = False
    tasks = [asyncio.create_task(informer.run()) for informer in every]
    try:
        await _synced(every, tasks)
        while True:
            changed.clear()
            found = model.get(key)
            if found is None:
                yield None, ""
                return
            objects = {kind: _all(informer) for kind, informer in others.items()}
            yield assemble(found, objects, first.hidden), trouble.text
            trouble.text = ""
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), AGES_S)
                await asyncio.sleep(CALM_S)
    finally:
        log.removeHandler(trouble)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.close()


def _all(informer: Informer) -> list[Object]:
    return [obj for key in informer.all_keys() if (obj := informer.get(key)) is not None]


async def _synced(informers: list[Informer], tasks: list[asyncio.Task[None]]) -> None:
    """Until every list was read. A task that ends has failed, and tells why."""
    waiting = asyncio.create_task(_all_synced(informers))
    done, _ = await asyncio.wait({waiting, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        await task


async def _all_synced(informers: list[Informer]) -> None:
    for informer in informers:
        await informer.synced.wait()


async def _connect(cluster: Cluster) -> KubeClient:
    from kubernetes.aio import config  # noqa: PLC0415  # loaded by now
    from kubernetes.aio.client.api_client import ApiClient  # noqa: PLC0415
    from kubernetes.aio.client.configuration import Configuration  # noqa: PLC0415

    settings = Configuration()
    if cluster.kubeconfig is None:
        config.load_incluster_config(settings)
    else:
        await config.load_kube_config(
            cluster.kubeconfig, cluster.place.context, client_configuration=settings, persist_config=False
        )
    return KubeClient(ApiClient(settings))


class _Trouble(logging.Handler):
    """What an informer complains of, for the page."""

    text = ""
    changed: asyncio.Event | None = None

    @override
    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            kind, error = (getattr(record, part, "") for part in ("kind", "error"))
            self.text = f"what is shown of {kind} may be old: {error}"
            if self.changed is not None:
                self.changed.set()


class _Page(contextlib.AbstractContextManager["_Page"]):
    """Where pages go."""

    def __init__(self, output: Output) -> None:
        self._output = output

    @abstractmethod
    def show(self, seen: Inventory, trouble: str) -> None:
        """Show a page."""

    def say(self, text: str) -> None:
        """The last word."""
        emit(text)

    @override
    def __exit__(self, *_: object) -> None:
        """Leave what was shown last."""


class _Log(_Page):
    """A file or a pipe: a page, and an empty line, whenever what it says has changed (its ages have not)."""

    _last: object = None

    @override
    def show(self, seen: Inventory, trouble: str) -> None:
        from halcyon_cli.output.tree import tree  # noqa: PLC0415  # as in `get`

        told = tree(seen)
        if (told, trouble) != self._last:
            self._last = told, trouble
            emit(_drawn(seen, trouble, self._output) + "\n")


class _Screen(_Page):
    """A terminal: one page that stays in its place."""

    def __init__(self, output: Output) -> None:
        from rich.console import Console  # noqa: PLC0415  # as in `get`
        from rich.live import Live  # noqa: PLC0415

        super().__init__(output)
        console = Console(no_color=not output.color, highlight=False)
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")

    @override
    def __enter__(self) -> Self:
        self._live.start()
        return self

    @override
    def __exit__(self, *_: object) -> None:
        self._live.stop()

    @override
    def show(self, seen: Inventory, trouble: str) -> None:
        from rich.text import Text  # noqa: PLC0415

        self._live.update(Text.from_ansi(_drawn(seen, trouble, self._output)), refresh=True)

    @override
    def say(self, text: str) -> None:
        self._live.console.print(text)


def _drawn(seen: Inventory, trouble: str, output: Output) -> str:
    from halcyon_cli.output import tables  # noqa: PLC0415
    from halcyon_cli.output.tree import tree  # noqa: PLC0415

    told = tree(seen)
    page = tables.tree_page(told, datetime.now(UTC))
    head = f"! {trouble}\n" if trouble else ""
    return head + tables.lines(page, width=output.width, color=output.color)
