"""`halcyon get NAME -w`: shows the tree, and redraws it on every change that the API server reports. It doesn't poll.

The operator's informers keep copies of the objects. They list the objects again after a lost watch, so they also notice
deletions. Out of scope: the contents (`tree`) and the layout (`tables`).
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
from halcyon_cli.kube.inventory import READ_KINDS, Inventory, assemble, read_inventory

DEBOUNCE_S = 0.2
"""Changes that arrive within this time, in seconds, cause one redraw."""
AGE_REFRESH_INTERVAL_S = 10.0
"""Maximum time between two redraws, in seconds, so that the ages shown stay current."""


def follow(cluster: Cluster, name: str, output: Output, limit_s: float | None) -> int:
    """Draw the tree until the time limit, the deletion of the model or an interrupt, and return the exit status.

    On a terminal the page is redrawn in place. Otherwise a new page is printed whenever its content changes.

    Raises:
        ClusterError: the model doesn't exist or can't be read.
    """
    initial = read_inventory(cluster, name)  # raises errors whose messages name the next step
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_follow(cluster, name, initial, output, limit_s))
    return 0


async def _follow(cluster: Cluster, name: str, initial: Inventory, output: Output, limit_s: float | None) -> None:
    screen = _TerminalWriter(output) if sys.stdout.isatty() else _StreamWriter(output)
    with screen, contextlib.suppress(TimeoutError):
        screen.show(initial, "")
        async with asyncio.timeout(limit_s):
            async for inventory, warning in changes(cluster, name, initial):
                if inventory is None:
                    screen.finish(f"ModelDeployment {name} was deleted")
                    return
                screen.show(inventory, warning)


async def changes(cluster: Cluster, name: str, initial: Inventory) -> AsyncIterator[tuple[Inventory | None, str]]:
    """Yield (objects, watch warning) on every change. The objects are None once the model is deleted."""
    key, changed, warning = Key(cluster.namespace, name), asyncio.Event(), _InformerWarnings()
    client = await _connect(cluster)
    selector = f"{names.OWNER_LABEL}={name}"
    model_informer = Informer(client, kinds.MODEL_DEPLOYMENT, namespaces=(key.namespace,))
    # A kind that couldn't be read in the first list can't be watched either.
    readable = [
        kind for kind in READ_KINDS if not any(line.startswith(f"{kind.plural} ") for line in initial.unreadable)
    ]
    child_informers = {
        kind: Informer(client, kind, selector=selector, namespaces=(key.namespace,)) for kind in readable
    }
    informers = [model_informer, *child_informers.values()]
    for informer in informers:
        informer.listeners.append(lambda *_: changed.set())
    warning.changed = changed
    log = logging.getLogger(Informer.__module__)
    log.addHandler(warning)
    log.propagate = False
    tasks = [asyncio.create_task(informer.run()) for informer in informers]
    try:
        await _wait_until_synced(informers, tasks)
        while True:
            changed.clear()
            resource = model_informer.get(key)
            if resource is None:
                yield None, ""
                return
            objects = {kind: _objects_of(informer) for kind, informer in child_informers.items()}
            yield assemble(resource, objects, initial.unreadable), warning.text
            warning.text = ""
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), AGE_REFRESH_INTERVAL_S)
                await asyncio.sleep(DEBOUNCE_S)
    finally:
        log.removeHandler(warning)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.close()


def _objects_of(informer: Informer) -> list[Object]:
    return [obj for key in informer.all_keys() if (obj := informer.get(key)) is not None]


async def _wait_until_synced(informers: list[Informer], tasks: list[asyncio.Task[None]]) -> None:
    """Wait until all informers have listed their objects. If an informer's task ends before, raise its error."""
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
            cluster.kubeconfig, cluster.target.context, client_configuration=settings, persist_config=False
        )
    return KubeClient(ApiClient(settings))


class _InformerWarnings(logging.Handler):
    """A log handler that keeps the last warning of an informer, for display on the page."""

    text = ""
    changed: asyncio.Event | None = None

    @override
    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            kind, error = (getattr(record, part, "") for part in ("kind", "error"))
            self.text = f"{kind} may be out of date: {error}"
            if self.changed is not None:
                self.changed.set()


class _PageWriter(contextlib.AbstractContextManager["_PageWriter"]):
    """Base class of the page outputs for terminals and streams."""

    def __init__(self, output: Output) -> None:
        self._output = output

    @abstractmethod
    def show(self, inventory: Inventory, warning: str) -> None:
        """Show a page for these objects, with the warning if there is one."""

    def finish(self, text: str) -> None:
        """Print the last line of the output."""
        emit(text)

    @override
    def __exit__(self, *_: object) -> None:
        """Keep the last page on the screen."""


class _StreamWriter(_PageWriter):
    """Page output for a file or a pipe: prints a page and an empty line if anything except the ages has changed."""

    _last: object = None

    @override
    def show(self, inventory: Inventory, warning: str) -> None:
        from halcyon_cli.output.tree import build_tree  # noqa: PLC0415  # as in `get`

        current = build_tree(inventory)
        if (current, warning) != self._last:
            self._last = current, warning
            emit(_render(inventory, warning, self._output) + "\n")


class _TerminalWriter(_PageWriter):
    """Page output for a terminal: one page, redrawn in place."""

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
    def show(self, inventory: Inventory, warning: str) -> None:
        from rich.text import Text  # noqa: PLC0415

        self._live.update(Text.from_ansi(_render(inventory, warning, self._output)), refresh=True)

    @override
    def finish(self, text: str) -> None:
        self._live.console.print(text)


def _render(inventory: Inventory, warning: str, output: Output) -> str:
    from halcyon_cli.output import tables  # noqa: PLC0415
    from halcyon_cli.output.tree import build_tree  # noqa: PLC0415

    model_tree = build_tree(inventory)
    page = tables.tree_page(model_tree, datetime.now(UTC), width=output.width)
    head = f"! {warning}\n" if warning else ""
    return head + tables.lines(page, width=output.width, color=output.color)
