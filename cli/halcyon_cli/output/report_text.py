"""Layout of a report on a model's replicas as plain text, as wide as the terminal, with optional color. Pure.

Out of scope: the report's contents (`explain.build`).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime

from halcyon_cli.explain.report import Note, PodCounts, ReplicaBounds, Report, ShownSignal, ShownWindow

MIN_WIDTH, MAX_WIDTH = 60, 140
_BOLD, _DIM, _GREEN, _YELLOW = "1", "2", "32", "33"
_UNITS = {
    "requestRate": " req/s",
    "queueDepth": " waiting",
    "concurrency": " in progress",
    "metric": "",
    "gpuUtilization": " %",
}
_GAP = "  "
_BREAKS, _CONTROL = re.compile(r"[\t-\r]+"), re.compile(r"[\x00-\x1f\x7f-\x9f]")


def render(report: Report, now: datetime, *, width: int = 100, color: bool = False) -> str:
    """Return the report as text, without a final newline.

    `width` is in columns. Names and numbers are never broken, so a line may be longer.
    """
    page = _Page(min(max(width, MIN_WIDTH), MAX_WIDTH), color=color)
    return "\n\n".join("\n".join(block) for block in page.blocks(report, now) if block)


def ago(at: datetime | None, now: datetime) -> str:
    """Format an age in one unit, such as `12s`, `3m`, `5h` or `2d`.

    The result is `-` if the age is unknown, and `0s` for a time in the future.
    """
    return "-" if at is None else _span((now - at).total_seconds())


def _span(seconds: float) -> str:
    """Format a duration in the largest unit of which it has at least two.

    For example, one day is written as 24h.
    """
    remaining = max(int(seconds), 0)
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if remaining >= 2 * length:
            return f"{remaining // length}{unit}"
    return f"{remaining}s"


class _Page:
    def __init__(self, width: int, *, color: bool) -> None:
        self._width, self._color = width, color

    def blocks(self, report: Report, now: datetime) -> Iterator[list[str]]:
        subject = f"{report.namespace}/{report.name}"
        first, *rest = self._wrapped(f"{subject}: {report.headline}", hang=2)
        yield [first.replace(subject, self._styled(subject, _BOLD), 1), *rest]
        yield self._facts(report, now)
        yield self._table(
            ("SIGNAL", "VALUE", "TARGET", "DESIRED", "AGE", "SOURCE", "NOTE"),
            [_signal(signal, now) for signal in report.signals],
        )
        rows = [(f"{'*' if part.wins else ' '} {part.name}", str(part.replicas), part.why) for part in report.parts]
        yield self._table(("  PART", "DESIRED", "REASON"), rows)
        yield [line for note in report.notes for line in self._note(note)]
        changes = [(f"{ago(c.time, now)} ago", f"{c.before} -> {c.after}", c.why) for c in report.decisions]
        yield self._table(("CHANGED", "DESIRED", "REASON"), changes)
        advice = [
            (a.field, a.current_value or "-", a.value, ago(a.since, now), f"{a.gain}: {a.evidence}".strip(": "))
            for a in report.advice
        ]
        yield self._table(("ADVICE", "NOW", "ADVISED", "FOR", "GAIN AND EVIDENCE"), advice)

    def _facts(self, report: Report, now: datetime) -> list[str]:
        facts: list[tuple[str, str]] = []
        if report.limits is not None:
            facts += [("limits", line) for line in _limits(report.limits, now)]
        if report.policy is not None:
            is_ours = not any(note.condition == "AutoscalerConflict" for note in report.notes)
            writer = "written by" if is_ours else "normally written by"
            written = f", {writer} {report.actuator} ({report.actuator_reason})" if report.mode == "Active" else ""
            facts.append(("decides", f"{report.policy}, mode {report.mode}{written}"))
        if report.limited_by:
            reasons = "; ".join(
                f"{item.name} ({item.meaning})" if item.meaning else item.name for item in report.limited_by
            )
            facts.append(("limited by", reasons))
        if report.capacity is not None:
            facts += [("replica", line) for line in report.capacity.describe()]
        if report.pods is not None:
            facts.append(("pods", _pods(report.pods)))
        if report.start is not None:
            facts.append(("pods", report.start))
        facts += [("capacity", item.describe()) for item in report.free_capacity]
        if report.decided_at is not None:
            facts.append(("decided", f"{ago(report.decided_at, now)} ago; updated when something changes"))
        lines = []
        before = ""
        for name, value in facts:
            label = f"{'' if name == before else name:<12}"
            first, *rest = self._wrapped(label + value, hang=12)
            lines += [self._styled(label, _DIM) + first[len(label) :], *rest]
            before = name
        return lines

    def _note(self, note: Note) -> list[str]:
        first, *rest = self._wrapped(f"! {note.condition} is {note.status} ({note.reason}): {note.message}", hang=2)
        return [self._styled("!", _YELLOW) + first[1:], *rest]

    def _table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
        """Return the lines of a table.

        Columns are as wide as their widest cell, numbers are right-aligned, and text in the last column wraps.
        """
        if not rows:
            return []
        columns = [n for n in range(len(head)) if any(row[n] for row in rows)]
        head, rows = [head[n] for n in columns], [[printable(row[n]) for n in columns] for row in rows]
        widths = [max(len(row[n]) for row in (head, *rows)) for n in range(len(head) - 1)]
        is_right_aligned = [all(row[n].isdigit() or row[n] in {"", "-"} for row in rows) for n in range(len(widths))]

        def line(row: Sequence[str]) -> str:
            cells = [row[n].rjust(w) if is_right_aligned[n] else row[n].ljust(w) for n, w in enumerate(widths)]
            return _GAP.join([*cells, row[-1]]).rstrip()

        hang = sum(widths) + len(_GAP) * len(widths)
        lines = [self._styled(line(head), _DIM)]
        for row in rows:
            wrapped = textwrap.wrap(
                row[-1], max(self._width - hang, 30), break_long_words=False, break_on_hyphens=False
            )
            first = line([*row[:-1], *(wrapped[:1] or [""])])
            if row[0].startswith("* "):
                first = self._styled("*", _GREEN) + first[1:]
            lines += [first, *(" " * hang + more for more in wrapped[1:])]
        return lines

    def _wrapped(self, line: str, *, hang: int) -> list[str]:
        return textwrap.wrap(
            printable(line), self._width, subsequent_indent=" " * hang, break_long_words=False, break_on_hyphens=False
        )

    def _styled(self, part: str, code: str) -> str:
        return f"\x1b[{code}m{part}\x1b[0m" if self._color else part


def printable(cell: str) -> str:
    """Return the text on one line, without control characters.

    Otherwise a text from another user could control the terminal.
    """
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", _BREAKS.sub(" ", cell))


def _limits(limits: ReplicaBounds, now: datetime) -> Iterator[str]:
    configured = f"{limits.min_replicas} to {limits.max_replicas}"
    if not limits.open:
        yield f"{configured} replicas"
    else:
        yield f"{limits.low} to {limits.high} replicas now; without schedules {configured}"
    for window in limits.open:
        remaining = _span((window.closes - now).total_seconds())
        yield f"schedule {window.name}, until {_when(window.closes)} (in {remaining}): {_bounds(window)}"
    if limits.conflict:
        yield limits.conflict
    if (upcoming := limits.upcoming) is not None:
        remaining = _span((upcoming.opens - now).total_seconds())
        yield f"next: schedule {upcoming.name}, from {_when(upcoming.opens)} (in {remaining}): {_bounds(upcoming)}"


def _bounds(window: ShownWindow) -> str:
    lower = "" if window.min_replicas is None else f"at least {window.min_replicas}"
    upper = "" if window.max_replicas is None else f"at most {window.max_replicas}"
    return ", ".join(part for part in (lower, upper) if part)


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
    if pods.ready > pods.desired:
        parts = [f"{pods.desired} desired, {pods.ready} ready"]
    else:
        parts = [f"{pods.ready} of {pods.desired} ready" if pods.desired else "none desired"]
    if pods.starting:
        parts.append(f"{pods.starting} starting")
    if pods.unready:
        parts.append(f"{pods.unready} no longer ready")
    if pods.unschedulable:
        parts.append(f"{pods.unschedulable} unschedulable")
    if pods.missing:
        parts.append(f"{pods.missing} not created yet")
    return ", ".join(parts)
