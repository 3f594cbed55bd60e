"""Report of one or more results: one HTML file that loads nothing from the network. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from halcyon_measure.report import (
    answer_sections,
    load_sections,
    model_sections,
    run_sections,
    second_engine_section,
    server_sections,
    sweep_sections,
)
from halcyon_measure.report.html_document import html_document
from halcyon_measure.report.labels import labelled
from halcyon_measure.report.markup import element
from halcyon_measure.results.document_file import StoredDocument


def page(documents: Sequence[StoredDocument], *, library: str, library_style: str) -> str:
    """Return the HTML page. `library` is the source of uPlot as a module; if it is empty, the page has only tables.

    Raises:
        ValueError: the last line of the library's source isn't the expected one.
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
        second_engine_section.second_engine(runs),
        model_sections.on_paper(runs),
        answer_sections.comparison(runs),
        answer_sections.leaderboard(runs),
        run_sections.run_settings(runs),
        run_sections.data(documents),
    ]
    models = list(dict.fromkeys(run.document.target.model or run.document.target.url for run in runs))
    title = models[0] if len(models) == 1 else f"{len(models)} models"
    time_text = max(run.document.made_at for run in runs) + (f" · {len(runs)} runs" if len(runs) > 1 else "")
    return html_document(
        sections,
        title=title,
        command="halcyon bench",
        time_text=time_text,
        library=library,
        library_style=library_style,
    )
