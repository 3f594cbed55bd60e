"""How a report looks: lines of plain text, as wide as the terminal, with a little colour where it is wanted. Pure.

Not here: what is told (`reporting`).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime

from halcyon_cli.explain.report import Note, PodCounts, ReplicaBounds, Report, ShownSignal, ShownWindow

NARROWEST, WIDEST = 60, 140
_BOLD, _DIM, _GREEN, _YELLOW = "1", "2", "32", "33"
_UNITS = {"requestRate": " req/s", "queueDepth": " waiting", "gpuUtilization": " %"}
_GAP = "  "
_BREAKS, _CONTROL = re.compile(r"[\t-\r]+"), re.compile(r"[\x00-\x1f\x7f-\x9f]")


def text(told: Report, now: datetime, *, width: int = 100, color: bool = False) -> str:
    """The report for a person, without a newline at its end.

    `width` in characters; names and numbers are never broken, so a line may be longer.
    """
    page = _Page(min(max(width, NARROWEST), WIDEST), color=color)
    return "\n\n".join("\n".join(block) for block in page.blocks(told, now) if block)


def ago(then: datetime | None, now: datetime) -> str:
    """An age in one unit, for example `12s`, `3m`, `5h` or `2d`; `-` where it isn't known, `0s` for what is to come."""
    return "-" if then is None else _span((now - then).total_seconds())


def _span(seconds: float) -> str:
    """A length of time in the largest unit of which there are two at least; a single day is 24h."""
    left = max(int(seconds), 0)
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if left >= 2 * length:
            return f"{left // length}{unit}"
    return f"{left}s"


class _Page:
    def __init__(self, width: int, *, color: bool) -> None:
        self._width, self._color = width, color

    def blocks(self, told: Report, now: datetime) -> Iterator[list[str]]:
        who = f"{told.namespace}/{told.name}"
        first, *rest = self._wrapped(f"{who}: {told.headline}", hang=2)
        yield [first.replace(who, self._painted(who, _BOLD), 1), *rest]
        yield self._facts(told, now)
        yield self._table(
            ("SIGNAL", "VALUE", "TARGET", "ASKS FOR", "AGE", "SOURCE", "NOTE"),
            [_signal(one, now) for one in told.signals],
        )
        rows = [(f"{'*' if part.wins else ' '} {part.name}", str(part.replicas), part.why) for part in told.parts]
        yield self._table(("  PART", "ASKS FOR", "WHY"), rows)
        yield [line for note in told.notes for line in self._note(note)]
        changes = [(f"{ago(c.time, now)} ago", f"{c.before} -> {c.after}", c.why) for c in told.decisions]
        yield self._table(("CHANGED", "WANTED", "WHY"), changes)

    def _facts(self, told: Report, now: datetime) -> list[str]:
        facts: list[tuple[str, str]] = []
        if told.limits is not None:
            facts += [("limits", line) for line in _limits(told.limits, now)]
        if told.policy is not None:
            is_ours = not any(note.condition == "AutoscalerConflict" for note in told.notes)
            by = "written by" if is_ours else "else written by"
            written = f", {by} {told.actuator} ({told.actuator_reason})" if told.mode == "Active" else ""
            facts.append(("decides", f"{told.policy}, mode {told.mode}{written}"))
        if told.limited_by:
            said = "; ".join(f"{one.name} ({one.meaning})" if one.meaning else one.name for one in told.limited_by)
            facts.append(("limited by", said))
        if told.pods is not None:
            facts.append(("pods", _pods(told.pods)))
        if told.start is not None:
            facts.append(("pods", told.start))
        facts += [("room", one.say()) for one in told.room]
        if told.decided_at is not None:
            facts.append(("decided", f"{ago(told.decided_at, now)} ago; shown anew when something has moved"))
        lines = []
        before = ""
        for name, value in facts:
            label = f"{'' if name == before else name:<12}"
            first, *rest = self._wrapped(label + value, hang=12)
            lines += [self._painted(label, _DIM) + first[len(label) :], *rest]
            before = name
        return lines

    def _note(self, note: Note) -> list[str]:
        first, *rest = self._wrapped(f"! {note.condition} is {note.status} ({note.reason}): {note.message}", hang=2)
        return [self._painted("!", _YELLOW) + first[1:], *rest]

    def _table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
        """Columns as wide as their widest cell; numbers stand to the right; the last column wraps."""
        if not rows:
            return []
        kept = [n for n in range(len(head)) if any(row[n] for row in rows)]
        head, rows = [head[n] for n in kept], [[printable(row[n]) for n in kept] for row in rows]
        widths = [max(len(row[n]) for row in (head, *rows)) for n in range(len(head) - 1)]
        right = [all(row[n].isdigit() or row[n] in {"", "-"} for row in rows) for n in range(len(widths))]

        def line(row: Sequence[str]) -> str:
            cells = [row[n].rjust(w) if right[n] else row[n].ljust(w) for n, w in enumerate(widths)]
            return _GAP.join([*cells, row[-1]]).rstrip()

        hang = sum(widths) + len(_GAP) * len(widths)
        lines = [self._painted(line(head), _DIM)]
        for row in rows:
            last = textwrap.wrap(row[-1], max(self._width - hang, 30), break_long_words=False, break_on_hyphens=False)
            first = line([*row[:-1], *(last[:1] or [""])])
            if row[0].startswith("* "):
                first = self._painted("*", _GREEN) + first[1:]
            lines += [first, *(" " * hang + more for more in last[1:])]
        return lines

    def _wrapped(self, line: str, *, hang: int) -> list[str]:
        return textwrap.wrap(
            printable(line), self._width, subsequent_indent=" " * hang, break_long_words=False, break_on_hyphens=False
        )

    def _painted(self, part: str, code: str) -> str:
        return f"\x1b[{code}m{part}\x1b[0m" if self._color else part


def printable(cell: str) -> str:
    """On one line, and without what would steer a terminal: some of it is other people's text."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", _BREAKS.sub(" ", cell))


def _limits(limits: ReplicaBounds, now: datetime) -> Iterator[str]:
    own = f"{limits.min_replicas} to {limits.max_replicas}"
    if not limits.open:
        yield f"{own} replicas"
    else:
        yield f"{limits.low} to {limits.high} replicas now; without schedules {own}"
    for window in limits.open:
        left = _span((window.closes - now).total_seconds())
        yield f"schedule {window.name}, until {_when(window.closes)} (in {left}): {_bounds(window)}"
    if limits.conflict:
        yield limits.conflict
    if (coming := limits.upcoming) is not None:
        left = _span((coming.opens - now).total_seconds())
        yield f"next: schedule {coming.name}, from {_when(coming.opens)} (in {left}): {_bounds(coming)}"


def _bounds(window: ShownWindow) -> str:
    least = "" if window.min_replicas is None else f"at least {window.min_replicas}"
    most = "" if window.max_replicas is None else f"at most {window.max_replicas}"
    return ", ".join(part for part in (least, most) if part)


def _when(at: datetime) -> str:
    return f"{at:%a %H:%M} {at.tzinfo}"


def _signal(signal: ShownSignal, now: datetime) -> tuple[str, ...]:
    unit = _UNITS.get(signal.name, "")
    return (
        signal.name,
        "?" if signal.value is None else signal.value + unit,
        "-" if signal.target is None else signal.target + unit,
        "-" if signal.proposal is None else str(signal.proposal),
        ago(signal.observed_at, now),
        signal.source,
        signal.missing or "",
    )


def _pods(pods: PodCounts) -> str:
    if pods.ready > pods.wanted:
        told = [f"{pods.wanted} wanted, {pods.ready} ready"]
    else:
        told = [f"{pods.ready} of {pods.wanted} ready" if pods.wanted else "none wanted"]
    if pods.starting:
        told.append(f"{pods.starting} starting")
    if pods.unschedulable:
        told.append(f"{pods.unschedulable} unschedulable")
    if pods.missing:
        told.append(f"{pods.missing} not created yet")
    return ", ".join(told)
