"""HTML page made of sections: one file that loads nothing from the network. Pure.

Reports of measurements and of tuning runs are such pages. Out of scope: their sections.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Sequence
from importlib import resources
from typing import Any

from halcyon_measure.report.markup import Content, Html, element, section

MAX_PLAIN = 256 << 10
"""Maximum size of data that isn't compressed, in characters. Compression keeps a page with 200 runs small."""
_EXPORT = "export { uPlot as default };"
"""Last line of the chart library's source. The page replaces it, so that the library becomes a function that returns
uPlot."""


def html_document(
    sections: Sequence[Html], *, title: str, command: str, time_text: str, library: str, library_style: str
) -> str:
    """Return the HTML page.

    Args:
        sections: sections of the page; empty ones are omitted.
        title: heading of the page.
        command: command whose results are shown.
        time_text: text about the time of the results.
        library: source of uPlot as a module; if it is empty, the page has only tables.
        library_style: style sheet of uPlot.

    Raises:
        ValueError: the source of the library doesn't end with the line `_EXPORT`.
    """
    script = _script(library)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{title}: {command}"),
        element("link", rel="icon", href="data:,"),
        element("style", Html(_static("report.css") + library_style)),
    )
    top = element(
        "header",
        element("div", element("p", f"{command} · {time_text}", class_="quiet"), element("h1", title)),
        element("button", "Dark", type="button", id="theme", hidden=True),
    )
    main = element("main", top, _contents(sections), sections, id="main", tabindex=-1)
    body = element(
        "body",
        element("a", "Skip to the result", href="#main", class_="skip"),
        main,
        element("script", Html(script), type="module"),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def data_section(documents: Sequence[tuple[str, Any]], *contents: Content) -> Html:
    """Return the section that contains documents as JSON. Each document is a pair of its name and its value."""
    values = [{"name": name, "document": value} for name, value in documents]
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
    encoding = "plain"
    if len(text) > MAX_PLAIN:
        encoding, text = "deflate", base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    # Within a script, only these could end it or begin a comment. In JSON they are the same as escapes.
    safe = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return section(
        "Data",
        contents,
        element("p", element("button", "Save the data", type="button", id="save", hidden=True), class_="buttons"),
        element("script", Html(safe), id="data", type="application/json", data_encoding=encoding),
        anchor="data-section",
    )


def _contents(sections: Sequence[Html]) -> Html:
    """Return links to the sections that aren't empty."""
    links = []
    for content in sections:
        _, separator, tail = content.partition('<h2 id="')
        if separator:
            anchor, _, inner = tail.partition('">')
            links.append(element("li", element("a", Html(inner.partition("</h2>")[0]), href=f"#{anchor}")))
    return element("nav", element("ul", links), aria_label="Sections")


def _script(library: str) -> str:
    page_script = _static("report.js")
    if not library:
        return f"const uPlot = null;\n{page_script}"
    source, separator, tail = library.rpartition(_EXPORT)
    if not separator or tail.strip():
        raise ValueError(f"the chart library doesn't end with {_EXPORT!r}")
    scoped = f"const uPlot = (() => {{\n{source}\nreturn uPlot;\n}})();\n{page_script}"
    # `</script` would end the element; in a string of JavaScript, the escape is the same text.
    return scoped.replace("</script", "<\\/script")


def _static(name: str) -> str:
    return resources.files("halcyon_measure.report").joinpath("static", name).read_text("utf-8")
