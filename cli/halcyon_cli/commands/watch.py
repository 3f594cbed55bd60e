"""`halcyon get NAME -w`: shows the tree, and redraws it on every change that the API server reports. It doesn't poll.

Out of scope: the contents (`tree`) and the layout (`tables`).
"""

from __future__ import annotations

import contextlib
import sys
import time
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import Self

from typing_extensions import override

from halcyon.kube import kinds
from halcyon.render import names
from halcyon_cli.arguments.options import Output, emit
from halcyon_cli.kube.client import Cluster
from halcyon_cli.kube.downloads import Downloads
from halcyon_cli.kube.inventory import READ_KINDS, Inventory, assemble, read_inventory
from halcyon_cli.kube.object_caches import ObjectCaches, Selection

DEBOUNCE_S = 0.2
"""Time in seconds during which several changes cause only one redraw."""
AGE_REFRESH_INTERVAL_S = 10.0
"""Maximum time between two redraws, in seconds. It keeps the displayed ages current."""


def follow(cluster: Cluster, name: str, output: Output, limit_s: float | None) -> int:
    """Draw the tree until the time limit, the deletion of the model or an interrupt, and return the exit status.

    Also stop if the output is a pipe that its reader has closed.

    On a terminal, the page is redrawn in place. Otherwise a new page is printed whenever its content changes.

    Raises:
        ClusterError: the model doesn't exist or can't be read.
    """
    initial = read_inventory(cluster, name)  # raises errors whose messages name the next step
    downloads = Downloads(cluster)
    ends_at = None if limit_s is None else time.monotonic() + limit_s
    with contextlib.suppress(KeyboardInterrupt):
        screen = _TerminalWriter(output) if sys.stdout.isatty() else _StreamWriter(output)
        with screen:
            for inventory, warning in chain([(initial, "")], changes(cluster, name, initial, ends_at)):
                if inventory is None:
                    screen.finish(f"ModelDeployment {name} was deleted")
                    break
                if not screen.show(replace(inventory, downloads=downloads.progress(inventory.servers)), warning):
                    break
    return 0


def changes(
    cluster: Cluster, name: str, initial: Inventory, ends_at: float | None = None
) -> Iterator[tuple[Inventory | None, str]]:
    """Yield (objects, watch warning) after every change, until the monotonic time `ends_at` in seconds, if it is given.

    The objects are None once the model is deleted.
    """
    selector = f"{names.OWNER_LABEL}={name}"
    # A kind that couldn't be read in the first list can't be watched either.
    readable = [
        kind for kind in READ_KINDS if not any(line.startswith(f"{kind.plural} ") for line in initial.unreadable)
    ]
    caches = ObjectCaches(
        cluster,
        {kinds.MODEL_DEPLOYMENT: Selection(fields=f"metadata.name={name}")}
        | {kind: Selection(labels=selector) for kind in readable},
    )
    caches.start()
    try:
        while True:
            left_s = (
                AGE_REFRESH_INTERVAL_S if ends_at is None else min(ends_at - time.monotonic(), AGE_REFRESH_INTERVAL_S)
            )
            if left_s <= 0:
                return
            caches.wait(left_s)
            if not caches.is_synced:
                if caches.warning:
                    yield initial, caches.warning
            else:
                time.sleep(DEBOUNCE_S)
                models = caches.objects(kinds.MODEL_DEPLOYMENT)
                if not models:
                    yield None, ""
                    return
                objects = {kind: caches.objects(kind) for kind in readable}
                yield assemble(models[0], objects, initial.unreadable), caches.warning
    finally:
        caches.stop()


class _PageWriter(contextlib.AbstractContextManager["_PageWriter"]):
    """Base class for the output of pages to a terminal or a stream."""

    def __init__(self, output: Output) -> None:
        self._output = output

    @abstractmethod
    def show(self, inventory: Inventory, warning: str) -> bool:
        """Show a page for these objects, with the warning if it isn't empty.

        Return False if the reader has closed the pipe, otherwise True.
        """

    def finish(self, text: str) -> None:
        """Print the last line of the output."""
        emit(text)

    @override
    def __exit__(self, *_: object) -> None:
        """Keep the last page on the screen."""


class _StreamWriter(_PageWriter):
    """Page output for a file or a pipe. It prints a page and an empty line if anything except the ages has changed."""

    _last: object = None

    @override
    def show(self, inventory: Inventory, warning: str) -> bool:
        from halcyon_cli.output.tree import build_tree  # noqa: PLC0415  # as in `get`

        current = build_tree(inventory)
        if (current, warning) != self._last:
            self._last = current, warning
            return emit(_render(inventory, warning, self._output) + "\n")
        return True


class _TerminalWriter(_PageWriter):
    """Page output for a terminal, which redraws one page in place."""

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
    def show(self, inventory: Inventory, warning: str) -> bool:
        from rich.text import Text  # noqa: PLC0415

        self._live.update(Text.from_ansi(_render(inventory, warning, self._output)), refresh=True)
        return True

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
