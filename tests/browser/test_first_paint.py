"""What the browser paints before it has rows, and how many rows it makes in a frame."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.screenshots import serve
from tests.browser.simulated_fleet import crowd

ROWS_PER_FRAME = 8
ROWS = 40
"""Rows that exist at once in a window of this height."""
PLACES = """() => {
  const rows = [...document.querySelectorAll('tbody tr')];
  const top = rows[0].getBoundingClientRect().top;
  return [
    rows.map((row) => [Number(row.ariaRowIndex), row.dataset.key.split('/')[1]]),
    rows.map((row) => row.getBoundingClientRect().top - top),
  ];
}"""
"""Number and name of each row, and its distance from the first one in pixels."""
COUNT_ROWS = """new MutationObserver((changes) => {
  const made = changes.flatMap((one) => [...one.addedNodes]).filter((one) => one instanceof HTMLTableRowElement && one.dataset.key).length;
  if (made) (window.made ??= []).push(made);
}).observe(document, { childList: true, subtree: true })"""
"""Counts the rows that each task adds."""


@pytest.fixture(scope="module")
def crowded() -> str:
    return serve(crowd(600), points=2)


def test_the_shell_needs_no_second_response(bare: Page, simulated: str) -> None:
    bare.route("**/static/**", lambda route: route.abort())
    bare.route("**/api/**", lambda route: route.abort())
    bare.goto(simulated)
    expect(bare.get_by_role("link", name="Halcyon")).to_be_visible()
    expect(bare.get_by_text("Loading")).to_be_visible()
    assert bare.locator("header").evaluate("header => getComputedStyle(header).display") == "flex"
    bare.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_chosen_theme_is_that_of_the_first_paint(bare: Page, simulated: str, theme: str) -> None:
    bare.emulate_media(color_scheme="light" if theme == "dark" else "dark")
    bare.add_init_script(f"localStorage.setItem('theme', '{theme}')")
    bare.route("**/static/**", lambda route: route.abort())
    bare.goto(simulated)
    assert bare.evaluate("getComputedStyle(document.documentElement).colorScheme") == theme


def test_rows_need_no_module_of_a_models_page(page: Page, simulated: str) -> None:
    before: list[str] = []
    page.on("request", lambda request: before.append(request.url))
    page.goto(simulated)
    expect(page.locator("tbody tr th a").first).to_be_visible()
    first = before.index(next(url for url in before if "/api/stream/models" in url))
    assert not [url for url in before[:first] if re.search(r"/(model|chart|uPlot[^/]*)\.", url)]


def test_a_models_page_opens_by_its_address_and_by_a_link(page: Page, simulated: str) -> None:
    page.goto(f"{simulated}#/vision/detector")
    expect(page.locator(".facts")).to_contain_text("1 of 1 ready")
    page.get_by_role("link", name="Measured", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Measured")
    page.get_by_role("link", name="All models").click()
    page.get_by_role("link", name="ranker", exact=True).click()
    expect(page.locator(".facts")).to_contain_text("2 of 2 ready")


def test_a_frame_makes_few_rows_however_far_one_scrolls(page: Page, crowded: str) -> None:
    page.add_init_script(COUNT_ROWS)
    page.goto(crowded)
    expect(page.locator("tbody tr")).to_have_count(ROWS)
    scroller = page.locator(".scroller")
    for part in (0.3, 0.9, 0.5):
        scroller.evaluate("(scroller, part) => scroller.scrollTo(0, scroller.scrollHeight * part)", part)
        expect(page.locator(f"tr[aria-rowindex='{int(600 * part) + 4}']")).to_be_visible()
        expect(page.locator("tbody tr")).to_have_count(ROWS)
    rows_by_frame = page.evaluate("window.made")
    assert max(rows_by_frame) <= ROWS_PER_FRAME
    assert sum(rows_by_frame) >= 4 * ROWS


def test_rows_keep_their_order_and_place_after_jumps(page: Page, crowded: str) -> None:
    page.goto(crowded)
    page.get_by_role("button", name="Model").click()
    scroller = page.locator(".scroller")
    for row in (300, 310, 280, 599):
        scroller.evaluate("(scroller, part) => scroller.scrollTo(0, scroller.scrollHeight * part)", (row - 2) / 600)
        expect(page.locator(f"tr[aria-rowindex='{row}']")).to_be_visible()
        # The page's Content-Security-Policy forbids the evaluation of text, which `wait_for_function` needs.
        expect(page.locator("tbody tr").nth(20)).to_be_attached()
        # One reading: between two of them, a frame may add rows above.
        rows, tops = page.evaluate(PLACES)
        positions, names = zip(*rows, strict=True)
        assert list(positions) == list(range(positions[0], positions[0] + len(rows)))
        assert list(names) == sorted(names)
        assert tops == pytest.approx([number * tops[1] for number in range(len(rows))], abs=1)
        assert row in positions


def test_the_focus_stays_in_its_row_while_rows_change(page: Page, simulated: str) -> None:
    page.goto(simulated)
    link = page.get_by_role("link", name="ranker", exact=True)
    link.focus()
    page.get_by_role("button", name="Model").dispatch_event("click")
    expect(page.locator("th", has=page.get_by_role("button", name="Model"))).to_have_attribute("aria-sort", "ascending")
    expect(link).to_be_focused()
