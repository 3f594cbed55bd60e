"""The report of one or more results: one HTML file that loads nothing from the network. Pure."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

from halcyon_measure.report import (
    answer_sections,
    load_sections,
    model_sections,
    run_sections,
    server_sections,
    sweep_sections,
)
from halcyon_measure.report.labels import labelled
from halcyon_measure.report.markup import Html, element
from halcyon_measure.results.document_file import StoredDocument

_EXPORT = "export { uPlot as default };"
"""Last line of the chart library's source. A page replaces it, so that the library is a function that returns uPlot."""


def page(documents: Sequence[StoredDocument], *, library: str, library_style: str) -> str:
    """Return the HTML page. `library` is the source of uPlot as a module; if it is empty, the page has tables only.

    Raises:
        ValueError: the source of the library doesn't end with the line `_EXPORT`.
    """
    runs = labelled(documents)
    sections = [
        element(
            "section", load_sections.answer(runs), load_sections.validity(runs), aria_label="Answer", class_="lead"
        ),
        load_sections.figures(runs),
        load_sections.latency(runs),
        load_sections.failures(runs),
        answer_sections.capacity(runs),
        sweep_sections.sweep(runs),
        server_sections.phases(runs),
        server_sections.hardware(runs),
        server_sections.energy(runs),
        server_sections.cold_start(runs),
        model_sections.on_paper(runs),
        answer_sections.comparison(runs),
        answer_sections.leaderboard(runs),
        run_sections.what_was_run(runs),
        run_sections.data(documents),
    ]
    models = list(dict.fromkeys(run.document.target.model or run.document.target.url for run in runs))
    title = models[0] if len(models) == 1 else f"{len(models)} models"
    script = _script(library)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    made = max(run.document.made_at for run in runs)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{title}: halcyon bench"),
        element("link", rel="icon", href="data:,"),
        element("style", Html(_static("report.css") + library_style)),
    )
    top = element(
        "header",
        element(
            "div",
            element("p", f"halcyon bench · {made}" + (f" · {len(runs)} runs" if len(runs) > 1 else ""), class_="quiet"),
            element("h1", title),
        ),
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


def _contents(sections: Sequence[Html]) -> Html:
    """Return links to the sections that aren't empty."""
    links = []
    for one in sections:
        _, found, rest = one.partition('<h2 id="')
        if found:
            anchor, _, inner = rest.partition('">')
            links.append(element("li", element("a", Html(inner.partition("</h2>")[0]), href=f"#{anchor}")))
    return element("nav", element("ul", links), aria_label="Sections")


def _script(library: str) -> str:
    own = _static("report.js")
    if not library:
        return f"const uPlot = null;\n{own}"
    source, found, rest = library.rpartition(_EXPORT)
    if not found or rest.strip():
        raise ValueError(f"the chart library doesn't end with {_EXPORT!r}")
    scoped = f"const uPlot = (() => {{\n{source}\nreturn uPlot;\n}})();\n{own}"
    # `</script` would end the element; in a string of JavaScript, the escape is the same text.
    return scoped.replace("</script", "<\\/script")


def _static(name: str) -> str:
    return resources.files("halcyon_measure.report").joinpath("static", name).read_text("utf-8")
