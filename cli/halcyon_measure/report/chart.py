"""Chart with its table. The page's script draws the chart from the table, so that the two always agree. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from halcyon_measure.report.markup import Content, Html, element
from halcyon_measure.results.number_text import count_text, number

MAX_LINES = 6
"""Maximum number of lines in a chart. Further lines are only in its table."""


@dataclass(frozen=True)
class Line:
    """One line of a chart, which is one column of its table."""

    name: str
    values: Sequence[float | None]
    is_drawn: bool = True


@dataclass(frozen=True)
class Axis:
    """Horizontal axis of a chart, which is the first column of its table."""

    name: str
    values: Sequence[float]
    scale: Literal["linear", "log", "nines", "time"] = "linear"
    labels: Sequence[str] | None = None
    """Texts to show in place of the values; None to show the numbers."""


def chart(
    title: str,
    axis: Axis,
    lines: Sequence[Line],
    *,
    unit: str,
    note: Content = None,
    log: bool = False,
    stepped: bool = False,
    spans_gaps: bool = False,
) -> Html:
    """Return a figure with these lines and their table; empty if no line has a value.

    With `log`, the vertical axis is logarithmic if the values span at least a factor of 20. With `spans_gaps`, a line
    continues across missing values, because there was no measurement. Otherwise it has a gap there.
    """
    if not any(value is not None for line in lines if line.is_drawn for value in line.values):
        return Html("")
    drawn = [line for line in lines if line.is_drawn][:MAX_LINES]
    head = [element("th", axis.name, scope="col")]
    head += [
        element("th", _with_unit(line.name, unit), scope="col", data_line=line.name if line in drawn else None)
        for line in lines
    ]
    rows = []
    for index, value in enumerate(axis.values):
        name = axis.labels[index] if axis.labels is not None else number(value)
        cells = [element("td", number(line.values[index])) for line in lines]
        rows.append(element("tr", element("th", name, scope="row", data_v=f"{value:.6g}"), cells))
    undrawn = sum(line.is_drawn for line in lines) - len(drawn)
    return element(
        "figure",
        element("figcaption", element("h3", title), element("p", note) if note else None),
        element("div", class_="chart", data_title=title),
        element("p", f"{count_text(undrawn, 'more line')} can be read in the table.", class_="quiet")
        if undrawn
        else None,
        element(
            "details",
            element("summary", "Table"),
            element(
                "div",
                element("table", element("thead", element("tr", head)), element("tbody", rows)),
                class_="scroller",
                role="region",
                tabindex=0,
                aria_label=f"Table: {title}",
            ),
        ),
        class_="plot",
        data_x=axis.scale,
        data_x_name=axis.name,
        data_unit=unit,
        data_log=log,
        data_stepped=stepped,
        data_spans_gaps=spans_gaps,
    )


def _with_unit(name: str, unit: str) -> str:
    return f"{name}, {unit}" if unit else name
