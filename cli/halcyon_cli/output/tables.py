"""Layout of trees and tables as text, as wide as the terminal, with optional color.

Out of scope: the contents (`tree`, `model_rows`), and the layout of a report (`report_text`).
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from halcyon_cli.output.report_text import ago, printable
from halcyon_cli.output.tree import Node, Tone, Tree

_MARKS: dict[Tone, tuple[str, str]] = {
    "good": ("✔", "green"),
    "busy": ("◌", "yellow"),
    "bad": ("✖", "red"),
    "calm": ("•", "bright_black"),
}


def lines(page: RenderableType, *, width: int, color: bool = False) -> str:
    """Return a page as text, without a final newline.

    `width` is in columns. Names and numbers are never broken, so a line may be longer.
    """
    console = Console(
        file=io.StringIO(), width=10_000, force_terminal=color, color_system="standard" if color else None
    )
    min_width = Measurement.get(console, console.options, page).minimum
    with console.capture() as captured:
        console.print(page, width=max(width, min_width))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


NARROW = 110
"""Width in columns below which a tree has no columns for kinds and ages, so that its last column stays readable."""


def tree_page(tree: Tree, now: datetime, *, width: int = NARROW) -> RenderableType:
    """Lay out a model's facts, notes and tree as a page for the given width."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bright_black", no_wrap=True)
    facts.add_column()
    for fact, value in tree.facts:
        facts.add_row(fact, Text(printable(value)))
    for note in tree.notes:
        facts.add_row(Text("!", style="yellow"), Text(printable(note)))
    is_wide = width >= NARROW
    table = _table(("NAME", "KIND", "STATE", "AGE", "INFO") if is_wide else ("NAME", "STATE", "INFO"))
    for prefix, node in _walk(tree.root):
        mark, style = _MARKS[node.tone]
        state = f"{mark} {node.state}" + (f" ({node.reason})" if node.reason else "")
        name = Text.assemble((prefix, "bright_black"), printable(node.name))
        state_text, info = Text(printable(state), style=style), Text(printable(node.info))
        table.add_row(
            *((name, node.kind, state_text, ago(node.created, now), info) if is_wide else (name, state_text, info))
        )
    return Group(facts, "", table)


def table_page(head: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderableType:
    """Lay out a table as a page. Columns that contain only numbers are right-aligned."""
    table = _table(head, right={n for n in range(len(head)) if all(_is_number(row[n]) for row in rows)})
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def _table(head: Sequence[str], right: Collection[int] = ()) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bright_black")
    for n, name in enumerate(head):
        # Names and numbers are never broken; the last column gets the remaining width and wraps if needed.
        is_last = n == len(head) - 1
        table.add_column(
            name,
            no_wrap=not is_last,
            overflow="fold" if is_last else "ignore",
            justify="right" if n in right else "left",
        )
    return table


def _is_number(cell: str) -> bool:
    return cell in {"", "-", "?"} or cell.replace(".", "", 1).isdigit()


def _walk(node: Node, prefix: str = "", branch: str = "") -> Iterator[tuple[str, Node]]:
    yield prefix + branch, node
    below = prefix + {"": "", "├── ": "│   ", "└── ": "    "}[branch]
    for child in node.children:
        yield from _walk(child, below, "└── " if child is node.children[-1] else "├── ")
