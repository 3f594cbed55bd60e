"""Row 4.3: a report of 200 runs in the system's Chromium, off line.

python -m benchmarks.measure.report

Chromium is $HALCYON_CHROMIUM, or the one in PATH; Playwright and axe are those of tests/browser (scripts/browser-site).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure.table import Measurements, measure
from benchmarks.quality.rows import ROOT, Row
from halcyon_cli.commands.measure.report import chart_library
from halcyon_measure.report.page import page
from halcyon_measure.results.document_file import StoredDocument, embedded
from tests.bench_documents import grid

RUNS, OPENINGS = 200, 5
MAX_MIB, MAX_PAINT_S = 1.5, 1.0
_LOOKS = (("light", 400), ("light", 1400), ("dark", 400), ("dark", 1400))


def row_3() -> Row:
    """Measure size, first paint, accessibility, console, requests and data of a report of 200 runs."""
    documents = grid(RUNS)
    library, style = chart_library()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        path.write_text(page(documents, library=library, library_style=style), "utf-8")
        observed = _opened(path, documents)
        size = path.stat().st_size
        is_equal = observed["equal"] and [data for _, data in embedded(path.read_text("utf-8"))] == [
            document.data for document in documents
        ]
    paints = observed["paint_s"]
    return Row(
        id="4.3",
        what=f"a report of {RUNS} runs (rows x protocol x rate, with phases, energy and verdict) in Chromium, off line",
        value={
            "mib": round(size / 2**20, 3),
            "first_paint_s": round(max(paints), 3),
            "first_paint_median_s": round(median(paints), 3),
            "axe_violations": len(observed["axe"]),
            "console_messages": len(observed["console"]),
            "requests": len(observed["requests"]),
            "read_back_equal": int(is_equal),
        },
        target="<= 1.5 MiB, first paint <= 1 s, 0 axe violations, 0 console errors, 0 requests, read back equal to the JSON",
        limits=[
            ("mib", MAX_MIB, "<="),
            ("first_paint_s", MAX_PAINT_S, "<="),
            ("axe_violations", 0, "<="),
            ("console_messages", 0, "<="),
            ("requests", 0, "<="),
            ("read_back_equal", 1, "=="),
        ],
        command="python -m benchmarks.measure.report",
        stand_ins="drawn requests of a queue with one server stand in for servers",
        n=OPENINGS,
        law="4 + 2 b ms, one at a time",
        load="Poisson, 30 % to 90 % of capacity, 30 s each",
        raw=observed | {"bytes": size},
    )


def _opened(path: Path, documents: Sequence[StoredDocument]) -> dict[str, Any]:
    """Open the page in each colour scheme and width, and further times. Return the browser's reports."""
    sys.path.insert(
        0, subprocess.run([ROOT / "scripts/browser-site"], check=True, capture_output=True, text=True).stdout.strip()
    )
    api: Any = import_module("playwright.sync_api")
    spec = find_spec("axe_playwright_python")
    assert spec is not None
    assert spec.origin is not None
    axe = Path(spec.origin).with_name("axe.min.js").read_text()
    chromium = os.environ.get("HALCYON_CHROMIUM") or shutil.which("chromium")
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    observed: dict[str, Any] = {
        "paint_s": [],
        "axe": [],
        "console": [],
        "requests": [],
        "equal": True,
        "chromium": chromium,
    }
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        for scheme, width in [*_LOOKS, *[_LOOKS[-1]] * (OPENINGS - len(_LOOKS))]:
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
            tab = context.new_page()
            tab.on("console", lambda message: observed["console"].append(f"{message.type}: {message.text}"))
            tab.on("pageerror", lambda error: observed["console"].append(str(error)))
            tab.on(
                "request",
                lambda request: observed["requests"].append(request.url) if request.url != path.as_uri() else None,
            )
            tab.goto(path.as_uri())
            tab.wait_for_selector(".chart canvas")
            paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            observed["paint_s"].append(tab.evaluate(paint) / 1000)
            with tab.expect_download() as download:
                tab.get_by_role("button", name="Save the data").click()
            saved = json.loads(Path(download.value.path()).read_text())
            observed["equal"] = observed["equal"] and saved == [document.data for document in documents]
            tab.evaluate("document.querySelectorAll('details').forEach((details) => (details.open = true))")
            tab.evaluate(f"{axe}\nnull")
            violations = tab.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
            observed["axe"] += [
                f"{violation['id']}: {node['html'][:200]}" for violation in violations for node in violation["nodes"]
            ]
            context.close()
        observed["version"] = browser.version
        browser.close()
    return observed


ROWS: Measurements = {"4.3": row_3}


def main() -> int:
    """Record the row."""
    return measure(ROWS, ROWS)


if __name__ == "__main__":
    sys.exit(main())
