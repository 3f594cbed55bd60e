"""The dashboard as people use it, in a real browser, over a real API server: with 5,000 models, and while one is scaled."""

import re
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from halcyon.kube import kinds
from tests.browser.figures import add_samples, record
from tests.browser.fleet import MODELS, Fleet, cpu_s, resident_mib, url
from tests.browser.patience import PATIENCE_MS
from tests.integration.operator_process import Operator
from tests.integration.operator_space import MERGE, Space, deployment, files

LOADS = 5
IDLE_WINDOWS = 3
ROWS = 40
"""Rows that exist at once in a window of this height."""


def axe(page: Page) -> list[str]:
    """What axe-core finds wrong on the page as it is."""
    spec = find_spec("axe_playwright_python")
    assert spec is not None
    assert spec.origin is not None
    page.evaluate(Path(spec.origin).with_name("axe.min.js").read_text() + "\nnull")
    report: dict[str, Any] = page.evaluate("axe.run({resultTypes: ['violations']})")
    violations = [
        f"{violation['id']}: {node['html'][:200]}" for violation in report["violations"] for node in violation["nodes"]
    ]
    add_samples("axe", [violations])
    return violations


@pytest.fixture
def models(page: Page, fleet: Fleet) -> Page:
    """The fleet's page, with its rows."""
    page.goto(fleet.url)
    expect(page.locator("tbody tr")).to_have_count(ROWS)
    return page


@pytest.fixture
def served(live: Space) -> Space:
    """One model that is served by two pods."""
    live.apply(
        files(), deployment("digits", replicas=2, scaling={"minReplicas": 1, "maxReplicas": 8, "mode": "Paused"})
    )
    live.scale(2, "digits")
    live.wait_settled("digits", limit_s=30)
    return live


def test_5000_models_are_painted_and_only_those_in_sight_exist(page: Page, fleet: Fleet) -> None:
    page.context.new_cdp_session(page).send("Network.setCacheDisabled", {"cacheDisabled": True})
    paints_s, rows_s = [], []
    for _ in range(LOADS):
        page.goto("about:blank")
        page.goto(f"{fleet.url}#/?text=team-")
        page.wait_for_selector("tbody tr th a")
        rows_s.append(page.evaluate("performance.now()") / 1000)
        paint_ms = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        paints_s.append(paint_ms / 1000)
    add_samples("first_paint_s", paints_s)
    add_samples("first_rows_s", rows_s)
    record(first_paint_s=median(paints_s), first_rows_s=median(rows_s))
    expect(page.locator(".count")).to_contain_text(f"{MODELS} models")
    expect(page.locator("table")).to_have_attribute("aria-rowcount", str(MODELS + 1))
    # A frame makes a few rows, so the last ones come some frames after the first.
    expect(page.locator("tbody tr")).to_have_count(ROWS)


def test_the_last_of_5000_is_reached_by_scrolling(models: Page) -> None:
    models.locator("#filter").fill("team-")
    expect(models.locator("table")).to_have_attribute("aria-rowcount", str(MODELS + 1))
    models.get_by_role("button", name="Model").click()
    expect(models.locator("tbody tr").first).to_have_attribute("aria-rowindex", "2")
    models.locator(".scroller").evaluate("scroller => scroller.scrollTo(0, scroller.scrollHeight)")
    last = models.locator(f"tr[aria-rowindex='{MODELS + 1}']")
    expect(last).to_be_visible()
    expect(last).to_contain_text("whisper")


def test_a_filter_shows_what_matches_and_the_address_keeps_it(models: Page) -> None:
    models.keyboard.press("/")
    models.keyboard.type("team-a bert")
    expect(models.locator(".count")).to_contain_text(" of 5")
    for text in models.locator("tbody th").all_inner_texts():
        assert re.search(r"bert[\s\S]*team-a", text), text
    models.reload()
    expect(models.locator("#filter")).to_have_value("team-a bert")
    expect(models.locator(".count")).to_contain_text(" of 5")


def test_a_state_is_one_click_away(models: Page) -> None:
    models.get_by_role("button", name=re.compile("^Stalled")).click()
    expect(models.locator("tbody tr .badge.stalled").first).to_be_visible()
    expect(models.locator("tbody tr .badge:not(.stalled)")).to_have_count(0)
    expect(models.get_by_role("button", name=re.compile("^Stalled"))).to_have_attribute("aria-pressed", "true")


def test_a_heading_sorts_and_says_so(models: Page) -> None:
    models.get_by_role("button", name="Replicas").click()
    heading = models.locator("th", has=models.get_by_role("button", name="Replicas"))
    expect(heading).to_have_attribute("aria-sort", "descending")
    expect(models.locator("tbody tr td:nth-of-type(2)").first).to_contain_text("/4")
    models.get_by_role("button", name="Replicas").click()
    expect(heading).to_have_attribute("aria-sort", "ascending")
    expect(models.locator("tbody tr td:nth-of-type(2)").first).to_contain_text("/0")


def test_a_change_of_one_among_5000_is_seen_at_once(models: Page, fleet: Fleet) -> None:
    models.locator("#filter").fill("0007")
    row = models.locator("tbody tr", has_text="0007").first
    expect(row).to_be_visible()
    space, name = row.get_attribute("data-key", timeout=PATIENCE_MS).split("/")  # type: ignore[union-attr]
    path = kinds.MODEL_DEPLOYMENT.path(space, name, "status")
    lags = []
    for ready in (11, 12, 13, 14, 15):
        status = {
            "status": {
                "replicas": ready,
                "readyReplicas": ready,
                "pods": {"total": ready, "ready": ready, "updated": ready, "unschedulable": 0},
            }
        }
        assert fleet.cluster.api.call("PATCH", path, status, content_type=MERGE).status == 200
        began = time.monotonic()
        models.wait_for_function(
            "wanted => [...document.querySelectorAll('tbody td')].some(cell => cell.textContent.startsWith(wanted))",
            arg=f"{ready}/",
            timeout=PATIENCE_MS,
            polling=50,
        )
        lags.append(time.monotonic() - began)
    record(update_lag_median_s=sorted(lags)[2], update_lag_max_s=max(lags))


def test_arrows_go_from_row_to_row_and_u_goes_back(models: Page) -> None:
    first = models.locator("tbody th a").first
    first.focus()
    models.keyboard.press("ArrowDown")
    focused = models.evaluate("document.activeElement.closest('tr').getAttribute('aria-rowindex')")
    assert focused == "3"
    models.keyboard.press("Enter")
    expect(models.get_by_role("heading", name="Reason for the replicas")).to_be_visible()
    models.keyboard.press("Escape")
    expect(models.get_by_role("heading", name="Reason for the replicas")).to_be_visible()
    models.keyboard.press("u")
    expect(models.get_by_role("heading", name="Models", exact=True)).to_be_attached()


def test_an_open_page_of_a_model_follows_a_real_scale_up(page: Page, leader: Operator, served: Space) -> None:
    page.goto(f"{url(leader)}#/live/digits")
    expect(page.locator(".facts")).to_contain_text("2 of 2 ready")
    expect(page.locator("#live")).to_have_text("Live")
    served.scale(4, "digits")
    expect(page.locator(".facts")).to_contain_text("4 of 4 ready")
    servers = page.get_by_role("table", name="Servers")
    expect(servers.locator("tbody tr .pod.ready")).to_have_count(4)
    expect(page.locator(".conditions")).to_contain_text("4 of 4 servers are ready")


def test_charts_can_be_read_by_keyboard(page: Page, leader: Operator, served: Space) -> None:
    assert served.settled("digits")
    page.goto(f"{url(leader)}#/live/digits")
    chart = page.locator("figure", has_text="Replicas").first
    expect(chart.locator(".readout")).to_contain_text("Newest point: ready")
    chart.locator(".chart[tabindex]").focus()
    page.keyboard.press("ArrowLeft")
    expect(chart.locator(".readout")).to_contain_text(re.compile(r"^[\d-]*\s?\d\d:\d\d:\d\d: ready"))
    page.keyboard.press("Escape")
    expect(chart.locator(".readout")).to_contain_text("Newest point: ready")
    expect(page.get_by_role("heading", name="digits")).to_be_visible()


def test_the_specification_is_read_when_it_is_asked_for(page: Page, leader: Operator, served: Space) -> None:
    assert served.settled("digits")
    page.goto(f"{url(leader)}#/live/digits")
    page.get_by_text("Specification and configuration").click()
    expect(page.get_by_label("Specification as YAML")).to_contain_text("maxReplicas: 8")
    expect(page.get_by_label("Settings that Halcyon adds")).to_contain_text('"model_name": "digits"')


def test_the_what_if_form_says_why_it_has_no_answer(page: Page, leader: Operator, served: Space) -> None:
    assert served.settled("digits")
    page.goto(f"{url(leader)}#/live/digits")
    page.get_by_text("What if the targets were different").click()
    page.get_by_label("Maximum replicas").fill("4")
    page.get_by_role("button", name="Calculate").click()
    expect(page.locator(".what-if + [role=status]")).to_contain_text("No past arrivals are known")
    assert axe(page) == []


def test_a_missing_model_is_reported_and_shown_once_it_exists(bare: Page, leader: Operator, live: Space) -> None:
    assert live.get(kinds.MODEL_DEPLOYMENT, "later") is None
    bare.goto(f"{url(leader)}#/live/later")  # of which the browser's console tells as well
    expect(bare.get_by_role("alert")).to_have_text("there is no ModelDeployment live/later")
    live.apply(files(), deployment("later"))
    expect(bare.locator(".facts")).to_contain_text("1 of 1 ready")
    expect(bare.get_by_role("alert")).to_be_hidden()


@pytest.fixture
def sights(page: Page, fleet: Fleet, leader: Operator, served: Space) -> dict[str, tuple[str, Callable[[], None]]]:
    """Each page's address, and the wait for it."""
    assert served.settled("digits")
    return {
        "fleet": (fleet.url, lambda: expect(page.locator("tbody tr")).to_have_count(ROWS)),
        "model": (f"{url(leader)}#/live/digits", lambda: expect(page.locator(".facts")).to_contain_text("ready")),
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390], ids=["desktop", "phone"])
def test_a_screen_reader_finds_no_fault_and_no_element_overflows(
    page: Page, sights: dict[str, tuple[str, Callable[[], None]]], scheme: str, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    for name, (address, wait) in sights.items():
        page.goto(address)
        wait()
        assert axe(page) == [], f"{name}, {scheme}, {width}"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name


def test_the_theme_is_chosen_and_kept(models: Page) -> None:
    button = models.locator("#theme")
    expect(button).to_have_text("Theme: system")
    button.click()
    button.click()
    expect(button).to_have_text("Theme: dark")
    models.reload()
    expect(models.locator("html")).to_have_attribute("data-theme", "dark")


def test_the_dashboard_costs_the_operator_a_bounded_amount(page: Page, fleet: Fleet) -> None:
    """Figures only. Both operators are the same but for the dashboard; neither leads."""
    both = (fleet.shows, fleet.plain)

    def spent(seconds: float) -> tuple[float, float]:
        before = [cpu_s(operator) for operator in both]
        page.wait_for_timeout(seconds * 1000)
        shows, plain = (cpu_s(operator) - was for operator, was in zip(both, before, strict=True))
        return shows / seconds, plain / seconds

    page.goto("about:blank")
    idle = [shows - plain for shows, plain in (spent(20) for _ in range(IDLE_WINDOWS))]
    add_samples("idle_cpu_share", idle)
    extra = resident_mib(fleet.shows) - resident_mib(fleet.plain)
    record(idle_cpu_share=median(idle), extra_memory_mib=extra, extra_memory_kib_per_model=extra * 1024 / MODELS)
    page.goto(fleet.url)
    expect(page.locator("tbody tr")).to_have_count(ROWS)
    shows, plain = spent(20)
    record(one_reader_cpu_share=shows - plain)
