"""The dashboard's charts in a real browser, over an hour that is known by heart: two charts of a page, 360 points, 10 s apart."""

import re
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.simulated_fleet import MODELS

END = 1_767_268_800
STEP = 10
BEGIN = END - 359 * STEP
GAP = range(100, 111)
"""Of `a`, but for the one in the middle."""
MAKE = """async ([end, step, gap]) => {
  const { Chart, Cursor } = await import("/static/chart.js");
  const cursor = new Cursor();
  const format = (value) => (value === null ? "none" : String(value));
  const first = new Chart({ title: "First", lines: [{ field: "a", name: "a", style: "first" }, { field: "far", name: "far", style: "limit" }], format, cursor });
  const second = new Chart({ title: "Second", lines: [{ field: "b", name: "b", style: "second", stepped: true }], format, cursor });
  document.querySelector("main").replaceChildren(cursor.zoomOut, first.element, second.element);
  const lone = (gap[0] + gap.at(-1)) / 2;
  const a = Array.from({ length: 360 }, (_, at) => (gap.includes(at) && at !== lone ? null : 70));
  const b = Array.from({ length: 360 }, (_, at) => at);
  const marks = [{ at: end - 1000, text: "1 to 2: a queue" }, { at: end - 20000, text: "long ago" }];
  const series = { end, step, a, b, far: Array(360).fill(100000) };
  Object.assign(window, { first, second, cursor, series, marks });
  first.show(series, marks);
  window.most = first.plot.scales.y.max;
  second.show(series);
  await new Promise(requestAnimationFrame);
}"""
PIXEL = """([chart, at, value]) => {
  const { plot } = window[chart];
  const ratio = plot.ctx.canvas.width / plot.width;
  const x = plot.valToPos(at, "x", true), y = plot.valToPos(value, "y", true);
  const copy = new OffscreenCanvas(plot.ctx.canvas.width, plot.ctx.canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(plot.ctx.canvas, 0, 0);
  const around = copy.getImageData(Math.round(x) - 1, Math.round(y - 2 * ratio), 3, Math.round(4 * ratio)).data;
  const pixels = Array.from({ length: around.length / 4 }, (_, at) => [...around.slice(4 * at, 4 * at + 4)]);
  return pixels.reduce((most, one) => (one[3] > most[3] ? one : most));
}"""
"""The most opaque pixel (red, green, blue, opacity) where a value is drawn."""


@pytest.fixture
def charts(page: Page, simulated: str) -> Page:
    page.goto(simulated)
    expect(page.locator("tbody tr")).to_have_count(len(MODELS))
    page.evaluate(MAKE, [END, STEP, list(GAP)])
    return page


def figure(page: Page, title: str) -> Locator:
    return page.locator("figure", has_text=title)


def stretch(page: Page, chart: str = "second") -> list[float]:
    """The seconds of the hour that a chart shows."""
    scale: dict[str, Any] = page.evaluate(f"{chart}.plot.scales.x")
    return [scale["min"] - BEGIN, scale["max"] - BEGIN]


def pixel(page: Page, chart: str, index: int, value: float) -> list[int]:
    color: list[int] = page.evaluate(PIXEL, [chart, BEGIN + index * STEP, value])
    return color


def ink(page: Page, title: str) -> list[int]:
    """The colour of the first line in the legend."""
    stroke: str = figure(page, title).locator(".legend path").first.evaluate("path => getComputedStyle(path).stroke")
    return [int(part) for part in re.findall(r"\d+", stroke)]


def at(page: Page, title: str, index: float) -> tuple[float, float]:
    """Where a point of the hour is on the screen."""
    box = figure(page, title).locator(".u-over").bounding_box()
    assert box is not None
    return box["x"] + box["width"] * index / 359, box["y"] + box["height"] / 2


def test_lines_are_drawn_where_their_values_are_and_gaps_stay_empty(charts: Page) -> None:
    assert pixel(charts, "first", 50, 70)[:3] == ink(charts, "First")
    assert pixel(charts, "first", 102, 70)[3] == 0
    assert pixel(charts, "first", 105, 70)[3] > 0, "a value between two gaps"
    assert pixel(charts, "second", 200, 200)[3] > 0
    assert pixel(charts, "second", 200, 250)[3] == 0


def test_a_limit_far_above_the_values_leaves_their_lines_readable(charts: Page) -> None:
    assert charts.evaluate("first.plot.scales.y.max") == 80
    charts.evaluate("first.show({ ...series, far: Array(360).fill(200) })")
    assert charts.evaluate("first.plot.scales.y.max") == 200


def test_both_charts_show_the_values_under_the_pointer(charts: Page) -> None:
    expect(figure(charts, "Second").locator(".readout")).to_have_text("Newest point: b 359")
    charts.mouse.move(*at(charts, "First", 200))
    expect(figure(charts, "First").locator(".readout")).to_contain_text("a 70, far 100000")
    expect(figure(charts, "Second").locator(".readout")).to_contain_text(": b 200")
    lines = [figure(charts, title).locator(".u-cursor-x").bounding_box() for title in ("First", "Second")]
    assert lines[0] is not None
    assert lines[1] is not None
    assert abs(lines[0]["x"] - lines[1]["x"]) < 2
    charts.mouse.move(5, 5)
    expect(figure(charts, "Second").locator(".readout")).to_have_text("Newest point: b 359")


def test_the_time_under_the_pointer_stays_when_points_arrive(charts: Page) -> None:
    readout = figure(charts, "Second").locator(".readout")
    for point in (lambda: charts.mouse.move(*at(charts, "First", 200)), lambda: charts.keyboard.press("PageUp")):
        point()
        before = readout.inner_text()
        assert re.search(r"\d\d:\d\d:\d\d: b ", before)
        for _ in range(3):
            charts.evaluate(
                "{ series.end += 10; series.b = [...series.b.slice(1), 0]; first.show(series); second.show(series); }"
            )
        assert readout.inner_text() == before
        figure(charts, "Second").locator(".chart").focus()


def test_a_decision_is_marked_at_its_time_and_shows_its_reason(charts: Page) -> None:
    mark = figure(charts, "First").locator(".mark")
    expect(mark).to_have_count(1)
    expect(mark).to_have_attribute("title", "1 to 2: a queue")
    box = mark.bounding_box()
    assert box is not None
    assert abs(box["x"] + box["width"] / 2 - at(charts, "First", 259)[0]) < 2
    charts.mouse.move(*at(charts, "First", 259))
    expect(figure(charts, "First").locator(".readout")).to_contain_text("1 to 2: a queue")


def test_a_stretch_is_dragged_over_and_all_charts_show_it(charts: Page) -> None:
    zoom_out = charts.get_by_role("button", name="Zoom out")
    expect(zoom_out).to_be_hidden()
    charts.mouse.move(*at(charts, "First", 100))
    charts.mouse.down()
    charts.mouse.move(*at(charts, "First", 200), steps=5)
    charts.mouse.up()
    expect(zoom_out).to_be_visible()
    for name in ("first", "second"):
        assert stretch(charts, name) == pytest.approx([1000, 2000], abs=15)

    charts.evaluate("second.show({ ...series, end: series.end + 10 })")
    assert stretch(charts) == pytest.approx([1000, 2000], abs=15), "new points don't move it"
    charts.evaluate("second.show(series)")
    charts.mouse.dblclick(*at(charts, "First", 180))
    expect(zoom_out).to_be_hidden()
    assert stretch(charts, "first") == stretch(charts) == [0, 3590]


def test_a_stretch_is_chosen_by_keyboard_and_followed(charts: Page) -> None:
    figure(charts, "Second").locator(".chart").focus()
    charts.keyboard.press("+")
    assert stretch(charts) == [1795, 3590]
    charts.keyboard.press("+")
    assert stretch(charts, "first") == [2692.5, 3590]
    for _ in range(4):
        charts.keyboard.press("PageUp")
    expect(figure(charts, "Second").locator(".readout")).to_contain_text(": b 240")
    assert stretch(charts) == [2400, 3297.5], "the cursor takes it along"
    charts.keyboard.press("-")
    assert stretch(charts) == [1502.5, 3297.5]
    charts.keyboard.press("Escape")
    assert stretch(charts) == [0, 3590]
    expect(figure(charts, "Second").locator(".readout")).to_have_text("Newest point: b 359")
    expect(charts.locator("figure")).to_have_count(2)


def test_the_zoom_ends_before_a_line_is_gone(charts: Page) -> None:
    figure(charts, "Second").locator(".chart").focus()
    for _ in range(12):
        charts.keyboard.press("+")
    assert stretch(charts) == [3530, 3590]


def test_the_first_point_alone_is_a_dot(charts: Page) -> None:
    charts.evaluate("second.show({ end: series.end, step: series.step, b: [7] })")
    assert stretch(charts) == [3590, 3600]
    assert pixel(charts, "second", 359, 7)[3] > 0
    expect(figure(charts, "Second").locator(".readout")).to_have_text("Newest point: b 7")


def test_the_colours_are_those_of_the_theme(charts: Page) -> None:
    before = ink(charts, "First")
    assert pixel(charts, "first", 50, 70)[:3] == before
    charts.emulate_media(color_scheme="dark")
    charts.evaluate("new Promise(requestAnimationFrame)")
    assert ink(charts, "First") != before
    assert pixel(charts, "first", 50, 70)[:3] == ink(charts, "First")
    charts.locator("#theme").click()
    expect(charts.locator("#theme")).to_have_text("Theme: light")
    assert pixel(charts, "first", 50, 70)[:3] == before


def test_a_chart_is_as_wide_as_its_room(charts: Page) -> None:
    for width in (700, 390, 1280):
        charts.set_viewport_size({"width": width, "height": 800})
        charts.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        assert charts.evaluate("[first.plot.width, second.plot.width]") == charts.evaluate(
            "[first.drawing.clientWidth, second.drawing.clientWidth]"
        )
        assert charts.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_an_empty_chart_says_so_until_a_value_is_known(charts: Page) -> None:
    nothing = figure(charts, "First").get_by_text("There are no values in this time range.")
    expect(nothing).to_be_hidden()
    charts.evaluate("first.show({ ...series, a: Array(360).fill(null) })")
    expect(nothing).to_be_visible()
    expect(figure(charts, "First").locator("canvas")).to_be_hidden()
    charts.evaluate("first.show(series)")
    expect(nothing).to_be_hidden()
    expect(figure(charts, "First").locator("canvas")).to_be_visible()


def test_the_axis_grows_with_what_is_shown(charts: Page) -> None:
    assert charts.evaluate("most") == 80, "the first time, too"
    for values, most in (([1], 1), ([1, 2], 2), ([1, 2, 2, 7], 8), ([1, 2, 2, 7, 3000], 3000), ([2, 2], 2)):
        charts.evaluate("values => second.show({ ...series, b: values })", values)
        assert charts.evaluate("second.plot.scales.y.max") == most, values
