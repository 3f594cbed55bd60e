"""Comparison of the output that a page shows with the real output of the commands above it.

Words are compared, not lines: pages wrap long lines, and the width of a column follows the longest name. `PATTERNS` has the
parts that differ from run to run. `...` is for what is left out: as a word for any number of words, at the end of a word for
the rest of the word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.blocks import transcript

_FENCED = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_MAX_LINES_BETWEEN = 5
"""Blank lines and prose between a block and its output."""
_HASH = "[bcdf-hj-np-tv-xz2-9]"
"""Characters of Kubernetes' generated names."""
LEFT_OUT = "..."

PATTERNS = (
    ("<time>", r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z"),
    ("<time>", r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\b"),
    ("<time>", r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}\b"),
    ("<folder>", r"/tmp/tmp\.\w{10}"),
    ("<address>", r"\b\d{1,3}(?:\.\d{1,3}){3}\b"),
    ("<pod>", rf"(?<=-){_HASH}{{6,10}}-{_HASH}{{5}}\b"),
    ("<revision>", r"(?<=-)[0-9a-f]{10}\b"),
    ("<age>", r"(?<![\w.=/-])(?:\d+[dhms])+(?![\w.])"),
    ("<duration>", r"\b\d+(?:\.\d+)?\?? (?:us|ms|s)\b"),
)
"""Parts that differ from run to run, as (word in their place, regular expression).

They are times, names from `mktemp`, IPv4 addresses, generated parts of the names of pods and revisions, ages, and durations with a unit.
"""
FIGURE = r"(?<![\w-])\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?"
"""A number that no letter precedes: only outputs of measurements are compared without their numbers."""


@dataclass(frozen=True)
class Step:
    """A block of shell commands on a page, or one command after a prompt, and the output that the page shows for it."""

    page: str
    script: str
    output: str | None
    """None: the page shows no output."""

    @property
    def name(self) -> str:
        """Return the page and the first line of the block or command."""
        return f"{self.page}: {self.script.partition(chr(10))[0]}"


def steps(page: Path) -> list[Step]:
    """Return the page's blocks of `sh`, in order.

    The output of a block is the next block, if that is of `text`, and if no heading and at most three lines of prose come
    before it.
    """
    text = page.read_text()
    fenced = list(_FENCED.finditer(text))
    return [
        Step(page.name, block["text"], _output(text, block, fenced[index + 1 : index + 2]))
        for index, block in enumerate(fenced)
        if block["language"] == "sh"
    ]


def console_steps(page: Path) -> list[Step]:
    """Return the commands of the page's `console` blocks, in order.

    The output of a command is what comes below it in its block. The last command's can be in a `text` block, as for `steps`.
    """
    text = page.read_text()
    fenced = list(_FENCED.finditer(text))
    return [
        step
        for index, block in enumerate(fenced)
        if block["language"] == "console"
        for step in _console(page.name, block["text"], _output(text, block, fenced[index + 1 : index + 2]))
    ]


def _console(page: str, block: str, after: str | None) -> Iterator[Step]:
    pairs = transcript(block)
    for command, output in pairs[:-1]:
        yield Step(page, command, output or None)
    for command, output in pairs[-1:]:
        yield Step(page, command, output or after)


def _output(text: str, block: re.Match[str], following: Sequence[re.Match[str]]) -> str | None:
    for after in following:
        between = text[block.end() : after.start()].strip("\n").splitlines()
        if after["language"] == "text" and len(between) <= _MAX_LINES_BETWEEN and not _has_heading(between):
            return after["text"]
    return None


def _has_heading(lines: Sequence[str]) -> bool:
    return any(line.startswith("#") for line in lines)


def normalised(text: str, *, has_figures: bool = False) -> list[str]:
    """Return the words of an output, with a placeholder for each part that differs from run to run.

    `has_figures`: every number is such a part, and so are the bars of a chart and the mark `?` of an uncertain figure.
    """
    for word, pattern in PATTERNS:
        text = re.sub(pattern, word, text)
    if has_figures:
        text = re.sub(FIGURE, "N", text)
        text = re.sub(r"N\?", "N", re.sub(r"(?<=\s)#+(?=\s)", "", text))
    return text.split()


def difference(shown: str, real: str, *, has_figures: bool = False) -> str | None:
    """Return the first words of the shown output that the real output lacks, in words; None if both agree."""
    shown_words = normalised(shown, has_figures=has_figures)
    real_words = normalised(real, has_figures=has_figures)
    position = 0
    is_anchored = True
    for segment, is_left_out_after in _segments(shown_words):
        last_start = len(real_words) - len(segment)
        if is_anchored:
            starts: Iterator[int] = iter([position])
        elif is_left_out_after:
            starts = iter(range(position, last_start + 1))
        else:
            starts = iter([last_start] if last_start >= position else [])
        start = next(
            (candidate for candidate in starts if _agrees(segment, real_words[candidate : candidate + len(segment)])),
            None,
        )
        if start is None:
            return f"the page has {_quoted(segment)}, the command printed {_quoted(real_words[position:])}"
        position = start + len(segment)
        if not is_left_out_after and position != len(real_words):
            return f"the command printed {_quoted(real_words[position:])} more than the page has"
        is_anchored = False
    return None


def _segments(words: Sequence[str]) -> Iterator[tuple[list[str], bool]]:
    """Yield the stretches between `...`, and whether a stretch is followed by one."""
    segment: list[str] = []
    for word in words:
        if word == LEFT_OUT:
            yield segment, True
            segment = []
        else:
            segment.append(word)
    if segment or not words or words[-1] != LEFT_OUT:
        yield segment, False


def _agrees(shown: Sequence[str], real: Sequence[str]) -> bool:
    return len(shown) == len(real) and all(
        word == other or (word.endswith(LEFT_OUT) and other.startswith(word.removesuffix(LEFT_OUT)))
        for word, other in zip(shown, real, strict=True)
    )


def _quoted(words: Sequence[str]) -> str:
    return f"'{' '.join(words[:40])}{' ...' if len(words) > 40 else ''}'"
