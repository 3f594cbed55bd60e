"""Construction of HTML elements. Texts are escaped, except for elements that were built here. Pure."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

MAX_ROWS = 24
"""Maximum number of rows of a table that is shown at its full height. A longer table scrolls."""
_NUMBER = re.compile(r"(?:-?[\d.]+(?:e-\d+)?\??|-)?(?:[ \u00a0][%kMGT]| of \d+)?")
_VOID = frozenset({"meta", "link", "br"})


class Html(str):
    """Text that is already HTML and isn't escaped again."""

    __slots__ = ()


Content = str | Iterable["Content"] | None


def element(name: str, /, *contents: Content, **attributes: str | float | bool | None) -> Html:
    """Return an HTML element. Attributes that are None or False are omitted; `_` in attribute names becomes `-`."""
    parts = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        plain = key.rstrip("_").replace("_", "-")
        parts.append(f" {plain}" if value is True else f' {plain}="{html.escape(str(value))}"')
    opening = f"<{name}{''.join(parts)}>"
    return Html(opening if name in _VOID else f"{opening}{joined(*contents)}</{name}>")


def joined(*contents: Content) -> Html:
    """Return the concatenation of contents, escaped if needed."""
    return Html("".join(_text(content) for content in contents))


def _text(content: Content) -> str:
    if content is None:
        return ""
    if isinstance(content, Html):
        return content
    if isinstance(content, str):
        return html.escape(_printable(content))
    return "".join(_text(part) for part in content)


def _printable(text: str) -> str:
    """Return the text without control characters, including those that change the writing direction."""
    return "".join(char if char.isprintable() or char in "\n\t\u00a0" else f"\\u{ord(char):04x}" for char in text)


def section(title: str, *contents: Content, anchor: str) -> Html:
    """Return a section with a heading; empty if there are no contents."""
    inner = joined(*contents)
    if not inner:
        return Html("")
    return element("section", element("h2", title, id=anchor), inner, aria_labelledby=anchor)


def table(head: Sequence[str], rows: Sequence[Sequence[Content]], *, label: str, sums: int = 0) -> Html:
    """Return a table that scrolls horizontally if it is too wide.

    The first cell of a row is its heading. Columns of numbers are right-aligned. The last `sums` rows are totals.
    """
    kinds = ["t" if n and not all(_is_number(row[n]) for row in rows) else None for n in range(len(head))]
    top = element("tr", [element("th", name, scope="col", class_=kind) for name, kind in zip(head, kinds, strict=True)])
    body = []
    for index, row in enumerate(rows):
        cells = [element("td", cell, class_=kind) for cell, kind in zip(row[1:], kinds[1:], strict=True)]
        is_sum = index >= len(rows) - sums
        body.append(element("tr", element("th", row[0], scope="row"), cells, class_="sum" if is_sum else None))
    return element(
        "div",
        element("table", element("thead", top), element("tbody", body)),
        class_="scroller long" if len(rows) > MAX_ROWS else "scroller",
        role="region",
        tabindex=0,
        aria_label=f"Table: {label}",
    )


def _is_number(cell: Content) -> bool:
    """Return True if a cell is empty, a number, a number with an interval, or a count out of a total."""
    if not isinstance(cell, str):
        return not cell or _is_number(next(iter(cell)))
    return _NUMBER.fullmatch(cell) is not None


def facts(pairs: Iterable[tuple[str, Content]]) -> Html:
    """Return a list of names and values. Entries with an empty value are omitted."""
    rows = [element("div", element("dt", name), element("dd", value)) for name, value in pairs if value]
    return element("dl", rows, class_="facts") if rows else Html("")
