"""Reports of `halcyon bench` in a real browser that is off line, and the results of a model in the dashboard."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from halcyon_cli.commands.measure.report import chart_library
from halcyon_measure.report.page import page as report
from halcyon_measure.results.document_file import StoredDocument, embedded
from tests.bench_documents import answers, bench_document, grid, stored
from tests.browser.figures import record
from tests.browser.test_pages import axe

HOSTILE = "</script><img src=x onerror=alert(1)> & \"'"
MAX_BYTES = 1.5 * 2**20

Open = Callable[[Sequence[StoredDocument]], Path]


@pytest.fixture
def opened(page: Page, tmp_path: Path) -> Open:
    """Return a function that opens the report of documents, off line; a request but that of the page fails the test."""
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.context.set_offline(True)

    def show(documents: Sequence[StoredDocument]) -> Path:
        library, style = chart_library()
        assert library
        path = tmp_path / "report.html"
        requests.clear()
        path.write_text(report(documents, library=library, library_style=style), "utf-8")
        page.goto(path.as_uri())
        page.wait_for_selector(".chart canvas")
        assert requests == [path.as_uri()]
        return path

    return show


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_no_report_has_an_accessibility_fault_or_overflows(page: Page, opened: Open, scheme: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # one of its values
    hostile = bench_document(model=HOSTILE, sections=True, failures=20, message=HOSTILE)
    for documents in (stored(hostile.model_copy(update=answers())), grid(20)):
        opened(documents)
        page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        assert axe(page) == [], (scheme, width)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_report_of_200_runs_is_small_and_painted_soon(page: Page, opened: Open) -> None:
    path = opened(grid(200))
    paint_ms = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    size = path.stat().st_size
    record(report_200_runs_bytes=size, report_200_runs_first_paint_s=paint_ms / 1000)
    assert size <= MAX_BYTES


def test_the_data_of_a_report_is_saved_as_it_was_given(page: Page, opened: Open) -> None:
    for documents in (stored(bench_document()), grid(60)):
        path = opened(documents)
        results = [result.data for result in documents]
        with page.expect_download() as download:
            page.get_by_role("button", name="Save the data").click()
        saved = json.loads(Path(download.value.path()).read_text())
        assert saved == (results[0] if len(results) == 1 else results)
        assert [data for _, data in embedded(path.read_text())] == results


def test_a_chart_is_read_with_the_arrow_keys(page: Page, opened: Open) -> None:
    (document,) = documents = stored(bench_document())
    opened(documents)
    chart = page.get_by_role("img", name="Chart: Latency over time")
    chart.focus()
    readout = page.locator("figure", has=chart).locator(".readout")
    expect(readout).to_contain_text("Arrow keys")
    page.keyboard.press("Home")
    first = document.document.timeline[0]
    expect(readout).to_contain_text("0 s: P50 ")
    assert first.p50_ms is not None
    assert f"P50 {first.p50_ms:.2f} ms" in readout.inner_text()
    page.keyboard.press("End")
    expect(readout).to_contain_text("29 s: P50 ")
    page.keyboard.press("Escape")
    expect(readout).to_contain_text("Arrow keys")


def test_a_line_is_hidden_by_its_name(page: Page, opened: Open) -> None:
    opened(stored(bench_document()))
    button = page.get_by_role("button", name="from send")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "false")


def test_a_report_is_printed_in_light_colours(page: Page, opened: Open) -> None:
    page.emulate_media(color_scheme="dark")
    opened(stored(bench_document(sections=True)))
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("Math.max(...[...document.querySelectorAll('.uplot')].map((one) => one.clientWidth))") <= 640
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"


@pytest.mark.parametrize("width", [400, 1400])
def test_results_of_a_model_are_listed_and_opened(page: Page, simulated: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{simulated}#/vision/detector")
    page.get_by_role("link", name="Measured").click()
    rows = page.get_by_role("table", name="Results").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(page.get_by_text("The run isn't valid")).to_be_visible()
    rows.nth(1).get_by_role("link").click()
    expect(page.get_by_text("The run isn't valid")).to_have_count(0)
    expect(page.get_by_role("table", name="Latency").locator("tbody tr")).to_have_count(3)
    with page.expect_download() as download:
        page.get_by_role("link", name="Save detector-").click()
    assert json.loads(Path(download.value.path()).read_text())["scenario"]["seed"] == 1
    assert axe(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.goto(f"{simulated}#/assistants/intent/measured")
    expect(page.get_by_text("The model has not been measured yet")).to_be_visible()


def test_decisions_say_that_the_served_model_was_loaded(page: Page, simulated: str) -> None:
    page.goto(f"{simulated}#/vision/detector")
    rows = page.get_by_role("table", name="Decisions").locator("tbody tr")
    expect(rows.first).to_contain_text("halcyon bench --live has loaded the model for")
    expect(rows.first).to_contain_text("p95 was above its bound")
    # The copy that was measured before is no cause of a decision.
    expect(rows.filter(has_text="halcyon bench")).to_have_count(1)
