"""`halcyon report bench.json [MORE.json]`: shows results of `halcyon bench` as a page, a table or CSV.

Out of scope: what the page contains (`halcyon_measure.report`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import click

from halcyon_cli import output_files
from halcyon_cli.arguments.options import emit, program
from halcyon_cli.errors import InputError

MAX_RUNS = 1000
_EPILOG = """\
\b
examples:
  halcyon report bench.json                  writes report.html beside it
  halcyon report out                         the result in a folder
  halcyon report a.json b.json -o runs.html  several runs, compared
  halcyon report */bench.json --csv          a row for each run
  halcyon report runs.html --json            the results in a report

\b
exit status:
  0  written
  2  a file isn't a result, is cut off, or can't be read or written
"""


@click.command("report", epilog=_EPILOG)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option(
    "-o",
    "--output",
    "to",
    metavar="FILE",
    help="Page to write; - for stdout. Default: report.html beside the first file.",
)
@click.option("--table", "kind", flag_value="table", help="Print a table instead.")
@click.option("--csv", "kind", flag_value="csv", help="Print CSV instead: a row for each run.")
@click.option(
    "--json", "kind", flag_value="json", help="Print the results instead: those of a report, or a list of several."
)
def main(files: tuple[Path, ...], to: str | None, kind: str | None) -> int:
    """Make one page of results: answer, latency, failures, phases, energy, and the data. It makes no request."""
    from halcyon_measure.report import csv_rows, table_text  # noqa: PLC0415  # the models of the document take a while to build
    from halcyon_measure.report.page import page  # noqa: PLC0415
    from halcyon_measure.results import document_file  # noqa: PLC0415

    if kind and to is not None:
        raise InputError(
            f"--{kind} prints; redirect it, as in: halcyon report bench.json --{kind} > FILE. Leave -o out"
        )
    if to is not None and (form := Path(to).suffix.removeprefix(".") or to) in {"json", "csv"}:
        raise InputError(f"-o {to}: the page is HTML; for {form.upper()}: halcyon report bench.json --{form} > FILE")
    files = tuple(path / "bench.json" if path.is_dir() else path for path in files)
    documents = document_file.read_all(files)
    if len(documents) > MAX_RUNS:
        raise InputError(f"{len(documents)} runs; a report has at most {MAX_RUNS}")
    if kind == "csv":
        emit(csv_rows.text(documents).rstrip("\n"))
    elif kind == "table":
        emit(table_text.page(documents))
    elif kind == "json":
        values = [document.data for document in documents]
        emit(json.dumps(values[0] if len(values) == 1 else values, indent=2, ensure_ascii=False))
    else:
        library, style = chart_library()
        if not library:
            print(
                f"{program()} report: the chart library isn't installed, so the page has tables and no charts; run make "
                "bootstrap and install again",
                file=sys.stderr,
            )
        _write(page(documents, library=library, library_style=style), to, files)
    return 0


def chart_library() -> tuple[str, str]:
    """Return the JavaScript and the CSS of uPlot; empty texts if it isn't installed.

    The wheel of the command line contains both (scripts/wheel.py). In a clone of the repository, only the dashboard's
    folder has them.
    """
    for package, folder in (("halcyon_measure.report", "static/uplot"), ("halcyon.dashboard", "static/uplot")):
        try:
            uplot = resources.files(package).joinpath(folder)
            return uplot.joinpath("uPlot.esm.js").read_text("utf-8"), uplot.joinpath("uPlot.min.css").read_text("utf-8")
        except (FileNotFoundError, ModuleNotFoundError):
            continue
    return "", ""


def _write(html: str, to: str | None, files: Sequence[Path]) -> None:
    if to == "-":
        emit(html.rstrip("\n"))
        return
    path = Path(to) if to is not None else files[0].parent / "report.html"
    if to is None and len(files) > 1 and path in files:
        raise InputError(f"{path} is one of the {len(files)} files, and would be replaced; for example -o runs.html")
    try:
        output_files.write(path, html.encode())
    except OSError as error:
        raise InputError(
            f"{path}: can't write the report: {error.strerror or error}; for example -o /tmp/report.html"
        ) from None
    print(f"{program()} report: wrote {path}", file=sys.stderr)
