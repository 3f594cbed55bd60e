"""SVG of a recorded terminal session: docs/images/first-model.svg from the asciicast beside it.

    python -m generators.recording docs/images/first-model.cast > docs/images/first-model.svg

Lines appear in the order and, with long waits shortened, at the pace of the recording. A viewer without animation, or
with reduced motion, shows all of them at once. The picture needs no script and loads nothing.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterable
from itertools import dropwhile
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

PICTURE: Final = Path(__file__).resolve().parents[1] / "docs" / "images" / "first-model.svg"
MAX_WAIT_S: Final = 1.2
"""Maximum wait between two lines in the picture, in seconds."""
MIN_WAIT_S: Final = 0.15
MAX_COLUMNS: Final = 104
FIRST: Final = "$ kubectl apply -f my-model.yaml"
"""Beginning of the first line of the recording that the picture shows. The installation before it is mostly Helm's
notes."""
_LINE: Final = 17
_CHARACTER: Final = 7.83
_PADDING: Final = 14
_BAR: Final = 26
_STYLE: Final = """\
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; white-space: pre; fill: #d7dce2 }
.command { fill: #7ee2a8; font-weight: 600 }
.note { fill: #8b97a5 }
@media (prefers-reduced-motion: no-preference) {
  @keyframes appear { from { opacity: 0 } to { opacity: 1 } }
  .line { animation: appear 0.01s linear both }
}"""


def lines(cast: str) -> list[tuple[float, str]]:
    """Return the lines of an asciicast (version 2), with the seconds at which each line appeared."""
    timed_lines: list[tuple[float, str]] = []
    for event in cast.splitlines()[1:]:
        at, kind, text = json.loads(event)
        if kind == "o":
            timed_lines += [(float(at), line) for line in str(text).splitlines()]
    return timed_lines


def paced(times: Iterable[float]) -> list[float]:
    """Return the times, with each wait limited to the range from `MIN_WAIT_S` to `MAX_WAIT_S`."""
    paced_times: list[float] = []
    last = now = 0.0
    for time in times:
        now += min(max(time - last, MIN_WAIT_S), MAX_WAIT_S) if paced_times else MIN_WAIT_S
        last = time
        paced_times.append(round(now, 2))
    return paced_times


def wrapped(text: str) -> list[str]:
    """Break a line into lines of at most `MAX_COLUMNS`; all but the first are indented."""
    return textwrap.wrap(text, MAX_COLUMNS, subsequent_indent="    ", drop_whitespace=False) or [""]


def svg(cast: str) -> str:
    """Return an SVG picture of an asciicast."""
    title = str(json.loads(cast.partition("\n")[0])["title"])
    visible = list(dropwhile(lambda line: not line[1].startswith(FIRST), lines(cast)))
    recorded = [(at, part) for at, text in visible for part in wrapped(text)]
    delays = paced(at for at, _ in recorded)
    width = round(max((len(text) for _, text in recorded), default=0) * _CHARACTER + 2 * _PADDING)
    height = _BAR + len(recorded) * _LINE + 2 * _PADDING
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#14191f"/>',
    ]
    colours = ("#ff5f57", "#febc2e", "#28c840")
    out += [
        f'<circle cx="{18 + 18 * number}" cy="16" r="5.5" fill="{colour}"/>' for number, colour in enumerate(colours)
    ]
    for number, ((_, text), delay) in enumerate(zip(recorded, delays, strict=True)):
        kind = " command" if text.startswith("$ ") else " note" if text.startswith("# ") else ""
        y = _BAR + _PADDING + (number + 1) * _LINE - 4
        out.append(
            f'<text class="line{kind}" x="{_PADDING}" y="{y}" xml:space="preserve" style="animation-delay:{delay}s">'
            f"{escape(text)}</text>"
        )
    return "\n".join([*out, "</svg>"]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(svg(Path(sys.argv[1]).read_text()))
