"""Nothing is cut off or broken within words at any width, and the numbers are those of the documents."""

import re
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.screenshots import serve
from tests.browser.simulated_fleet import CANARY, SimulatedFleet

PATHS = (
    "#/vision/detector",
    "#/search/ranker",
    "#/assistants/intent",
    "#/speech/diarizer",
    "#/vision/detector/measured",
)
BROKEN_WORDS = """() => {
  const broken = [];
  for (const cell of document.querySelectorAll(".wide-scroller th, .wide-scroller td, .facts dd")) {
    const words = cell.matches("dd") ? /[A-Za-z0-9]+/g : /[A-Za-z0-9.,:]+/g; // an address may be broken at its dots
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      for (const word of texts.currentNode.data.matchAll(words)) {
        const range = document.createRange();
        range.setStart(texts.currentNode, word.index);
        range.setEnd(texts.currentNode, word.index + word[0].length);
        if (new Set([...range.getClientRects()].map((one) => Math.round(one.top))).size > 1) broken.push(word[0]);
      }
    }
  }
  return broken;
}"""
"""Words of tables and facts that are on more than one line."""
OUT_OF_PLACE = """() => {
  const main = document.querySelector("main");
  const wide = [main, ...main.querySelectorAll("h1, .bar, .crumbs, .rollouts li > *, .facts dd, .panel:not(details), .headline")].filter((one) => {
    return one.offsetParent && (one === main || getComputedStyle(one).overflowX === "visible");
  });
  return wide.filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.className || one.localName);
}"""
"""Elements whose content is wider than they are. Tables scroll by themselves."""
LABELS = """const fillText = CanvasRenderingContext2D.prototype.fillText;
window.labels = {};
CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...more) {
  if (this.textAlign === "right") {
    const left = this.getTransform().e + x - this.measureText(text).width;
    const chart = this.canvas.closest("figure").querySelector("h3").textContent;
    if (parseFloat(text) === 0) window.labels[chart] = []; // the lowest one is drawn first
    window.labels[chart].push({ text, left });
  }
  return fillText.call(this, text, x, y, ...more);
};"""
"""Keeps the labels of the vertical axes, which charts draw."""


@pytest.mark.parametrize("width", [1280, 800, 390])
@pytest.mark.parametrize("path", PATHS)
def test_no_word_of_a_table_or_fact_is_broken(page: Page, simulated: str, path: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(f"{simulated}{path}")
    expect(page.locator(".facts > div").first).to_be_visible()
    assert page.evaluate(BROKEN_WORDS) == []


@pytest.mark.parametrize("width", [1280, 800, 390])
def test_states_and_numbers_of_the_fleet_are_not_cut_off(page: Page, simulated: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 1400})
    page.goto(simulated)
    expect(page.locator("tbody tr")).to_have_count(24)
    cut = page.evaluate(
        """[...document.querySelectorAll(".badge, .totals dd, tbody td.n, thead th")].filter((one) => one.offsetParent).filter((one) => {
          const cell = one.closest("td, th, .totals > div") ?? one;
          return one.getBoundingClientRect().right > cell.getBoundingClientRect().right || one.scrollWidth > one.clientWidth + 1 && one.matches("td, th, dd");
        }).map((one) => one.textContent)"""
    )
    assert cut == []


def test_the_first_rows_are_on_the_first_screen_of_a_phone(page: Page, simulated: str) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(simulated)
    expect(page.locator("tbody tr")).to_have_count(24)
    for index in range(4):
        expect(page.locator("tbody tr").nth(index)).to_be_in_viewport(ratio=1)


def test_labels_of_axes_are_round_and_inside_their_charts(page: Page, simulated: str) -> None:
    page.add_init_script(LABELS)
    for path in ("#/vision/detector", "#/search/ranker", "#/assistants/intent"):
        page.goto(f"{simulated}{path}")
        expect(page.locator("figure canvas").first).to_be_visible()
        page.wait_for_function("Object.keys(window.labels).length >= 8")
        for chart, labels in page.evaluate("window.labels").items():
            values = [milliseconds(label["text"]) for label in labels]
            assert len(values) > 2 or chart == "Replicas"
            assert values == pytest.approx([values[1] * index for index in range(len(values))], rel=1e-6), chart
            assert min(label["left"] for label in labels) >= 0, chart


def milliseconds(label: str) -> float:
    """Value of a label; seconds in milliseconds."""
    value = float(label.split(maxsplit=1)[0])
    return value * 1000 if label.endswith(" s") else value


def test_an_objective_that_is_not_set_has_no_legend(page: Page, simulated: str) -> None:
    page.goto(f"{simulated}#/vision/detector")
    chart = page.locator("figure", has=page.get_by_role("heading", name="GPU utilisation"))
    expect(chart.locator(".readout")).to_have_text(re.compile(r"^Newest point: mean of the ready pods [\d.]+ %$"))
    expect(chart.get_by_text("target", exact=True)).to_be_hidden()
    latency = page.locator("figure", has=page.get_by_role("heading", name="Client latency"))
    expect(latency.get_by_text("objective for p99", exact=True)).to_be_visible()


def test_a_missing_model_has_the_reason_and_no_empty_panels(bare: Page, simulated: str) -> None:
    bare.goto(f"{simulated}#/vision/absent")
    expect(bare.get_by_role("alert")).to_have_text("there is no ModelDeployment vision/absent")
    expect(bare.get_by_role("heading", name="Conditions")).to_be_hidden()
    expect(bare.get_by_text("Loading")).to_be_hidden()


def test_a_deleted_model_has_the_reason_and_no_old_values(bare: Page) -> None:
    fleet = SimulatedFleet((CANARY,))
    bare.goto(f"{serve(fleet)}#/vision/detector")
    expect(bare.get_by_role("heading", name="Conditions")).to_be_visible()
    fleet._objects.clear()
    expect(bare.get_by_role("alert")).to_have_text("there is no ModelDeployment vision/detector")
    expect(bare.get_by_role("heading", name="Conditions")).to_be_hidden()


@pytest.mark.parametrize("width", [1280, 390])
def test_names_of_maximum_length_stay_in_their_places(page: Page, width: int) -> None:
    longest = replace(CANARY, namespace="n" * 63, name="m" * 52)
    url = serve(SimulatedFleet((longest,)))
    page.set_viewport_size({"width": width, "height": 1400})
    for path in ("", f"#/{longest.namespace}/{longest.name}", f"#/{longest.namespace}/{longest.name}/measured"):
        page.goto(f"{url}{path}")
        expect(page.get_by_text(longest.name).first).to_be_visible()
        assert page.evaluate(OUT_OF_PLACE) == [], path


def test_a_rollout_has_the_namespace_of_its_model(page: Page, simulated: str) -> None:
    page.goto(simulated)
    expect(page.locator(".rollouts li", has_text="detector")).to_contain_text("detector vision")


def shown(value: float | None, digits: int) -> Any:
    """What a cell with this value contains, rounded to this many digits."""
    return None if value is None else pytest.approx(value, rel=0.51 * 10 ** (1 - digits), abs=0.051)


def read(text: str) -> float | None:
    """Value of a cell; milliseconds for times, the middle of what "< 0.1" may be, and None for a dash."""
    match = re.match(r"(?:< )?([\d.,]+)(?: (ms|s|%))?", text)
    if match is None:
        assert text.startswith("\u2013"), text
        return None
    value = float(match[1].replace(",", "")) * (1000 if match[2] == "s" else 1)
    return value / 2 if text.startswith("<") else value


def test_numbers_of_the_fleet_are_those_of_its_document(page: Page, simulated: str) -> None:
    page.goto(simulated)
    expect(page.locator("tbody tr")).to_have_count(24)
    document = page.request.get(f"{simulated}api/models?limit=200").json()
    heads = [text.split(" ")[0] for text in page.locator("thead th").all_inner_texts()]
    fields = {
        "Requests/s": ("rate", 3), "Errors": ("errors", 2), "p99": ("latency", 3), "Queue": ("queue", 2),
        "GPU": ("gpu", 2), "GPUs": ("gpus", 4), "Cost/h": ("cost", 4),
    }  # fmt: skip
    for row in document["rows"]:
        cells = page.locator(f"tr[data-key='{row['namespace']}/{row['name']}'] > *").all_inner_texts()
        assert len(cells) == len(heads)
        by_head = dict(zip(heads, cells, strict=True))
        assert by_head["Replicas"].split("\n")[0] == f"{row['ready']}/{row['replicas']}"
        for head, (field, digits) in fields.items():
            assert read(by_head[head]) == shown(row[field], digits), (row["name"], head)
    tiles = {text.split("\n")[0]: text.split("\n")[1] for text in page.locator(".totals > div").all_inner_texts()}
    assert read(tiles["GPUs used"]) == document["gpus"]
    assert read(tiles["Cost per hour"]) == pytest.approx(document["cost"], abs=0.005)
    assert read(tiles["Requests/s"]) == pytest.approx(document["rate"], rel=5e-3)
    assert read(tiles["Errors/s"]) == pytest.approx(document["errors"], rel=5e-3)


def test_counts_of_a_large_fleet_are_exact(page: Page, simulated: str) -> None:
    page.goto(simulated)
    integer = "async (value) => (await import('/static/format.js')).integer(value)"
    money = "async (value) => (await import('/static/format.js')).money(value)"
    assert page.evaluate(integer, 7512) == "7,512"
    assert page.evaluate(money, 12345.678) == "12,345.68"
    assert page.evaluate(money, 0.004) == "< 0.01"
