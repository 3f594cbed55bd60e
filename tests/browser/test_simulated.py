"""The dashboard for the person on call, in a real browser: a fleet under simulated load, and 5,000 models. It needs no cluster."""

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.figures import add_samples, record, task_cpu_ms
from tests.browser.screenshots import CLUSTER, serve
from tests.browser.simulated_fleet import MODELS, crowd
from tests.browser.test_pages import axe

MANY = 5000
FRAMES = """() => { window.frames_ms = []; let last = performance.now();
  const next = (now) => { window.frames_ms.push(now - last); last = now; requestAnimationFrame(next); };
  requestAnimationFrame(next);
  new PerformanceObserver((list) => (window.tasks_ms = [...(window.tasks_ms || []), ...list.getEntries().map((one) => one.duration)])).observe({ type: "longtask" }); }"""


@pytest.fixture
def url(simulated: str) -> str:
    return simulated


@pytest.fixture(scope="module")
def crowded() -> str:
    """5,000 models, whose rows are those of the fleet again and again."""
    return serve(crowd(MANY), points=2)


@pytest.fixture
def fleet(page: Page, url: str) -> Page:
    page.goto(url)
    expect(page.locator("tbody tr")).to_have_count(len(MODELS))
    return page


@pytest.fixture
def copying(browser: Browser, url: str) -> Iterator[Page]:
    """A page that may use the clipboard."""
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(f"{url}#/vision/detector")
    yield page
    context.close()


def tile(page: Page, name: str) -> str:
    return page.locator(".totals > div", has_text=name).locator("dd").inner_text()


def test_totals_and_what_is_wrong_come_first(fleet: Page) -> None:
    assert re.fullmatch(r"[\d.]+ 23 of 24 report", tile(fleet, "Requests/s"))
    assert tile(fleet, "Missing their latency objective").startswith("1 of ")
    assert tile(fleet, "Unhealthy") == "2 of 24 models"
    expect(fleet.locator(".totals > div", has_text="GPUs used").locator("dd")).to_have_text("35 of 48 allocatable")
    assert [fleet.locator("tbody th a").nth(index).inner_text() for index in range(4)] == [
        "diarizer",
        "ranker",
        "intent",
        "merchant-risk",
    ]


def test_the_cluster_is_named_in_the_header_and_the_tab(fleet: Page) -> None:
    expect(fleet.locator("#cluster")).to_have_text(CLUSTER)
    expect(fleet).to_have_title(f"Models · {CLUSTER} · Halcyon")


def test_a_total_leads_to_its_models(fleet: Page) -> None:
    fleet.locator(".totals > div", has_text="Unhealthy").get_by_role("link").click()
    expect(fleet.locator("tbody tr")).to_have_count(2)
    expect(fleet.get_by_role("button", name=re.compile("^Problems"))).to_be_visible()


def test_an_unknown_value_is_a_dash_with_the_reason(fleet: Page) -> None:
    row = fleet.locator("tbody tr", has_text="merchant-risk")
    expect(row.locator("td .none").first).to_have_text("\u2013")
    expect(row.locator("td .none").first).to_have_attribute("title", re.compile("has reported in the last 15 s"))
    expect(row.locator("td", has_text="0 %")).to_have_count(0)


def test_a_namespace_has_its_own_totals_and_the_address_keeps_it(fleet: Page) -> None:
    fleet.get_by_label("Namespace").select_option("fraud")
    expect(fleet.locator("tbody tr")).to_have_count(4)
    assert tile(fleet, "Unhealthy") == "0 of 4 models"
    fleet.reload()
    expect(fleet.get_by_label("Namespace")).to_have_value("fraud")
    expect(fleet.locator("tbody tr")).to_have_count(4)


def test_a_view_is_saved_opened_and_deleted(fleet: Page) -> None:
    fleet.get_by_label("Namespace").select_option("vision")
    fleet.get_by_role("button", name="Save view").click()
    fleet.get_by_label("Name of the view").fill("my models")
    fleet.keyboard.press("Enter")
    fleet.get_by_role("link", name="Halcyon").click()
    expect(fleet.locator("tbody tr")).to_have_count(len(MODELS))
    fleet.reload()
    fleet.get_by_role("button", name="my models", exact=True).click()
    expect(fleet.locator("tbody tr")).to_have_count(sum(model.namespace == "vision" for model in MODELS))
    fleet.get_by_role("button", name="Delete the view my models").click()
    expect(fleet.get_by_role("button", name="my models", exact=True)).to_have_count(0)


def test_the_focus_stays_on_a_control_that_changes(fleet: Page) -> None:
    chip = fleet.locator(".states button").first
    chip.focus()
    fleet.keyboard.press("Enter")
    expect(chip).to_have_attribute("aria-pressed", "true")
    expect(chip).to_be_focused()


def test_pages_open_in_a_browser_that_stores_nothing(page: Page, url: str) -> None:
    page.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('denied', 'SecurityError'); } })"
    )
    page.goto(url)
    expect(page.locator("tbody tr")).to_have_count(len(MODELS))
    page.locator("#theme").click()
    expect(page.locator("#theme")).to_have_text("Theme: light")


REFILL = """async () => {
  const { h, refill } = await import("/static/dom.js");
  const list = h("ul");
  document.querySelector("main").replaceChildren(list);
  const rows = (...pods) => pods.map(([name, age]) => h("li", {}, `${name} ${age} `, h("button", { "data-pod": name }, "Log")));
  refill(list, ...rows(["a", "1 s"], ["b", "9 h"], ["c", "1 s"]));
  const [, kept] = list.children;
  list.querySelector("[data-pod=c]").focus();
  const at = () => document.activeElement?.dataset.pod ?? document.activeElement?.localName;
  const found = [];
  refill(list, ...rows(["a", "2 s"], ["b", "9 h"], ["c", "2 s"]));
  found.push(at(), list.children[1] === kept);
  refill(list, ...rows(["new", "0 s"], ["a", "3 s"], ["b", "9 h"], ["c", "3 s"]));
  found.push(at(), list.children.length);
  refill(list, ...rows(["b", "9 h"]));
  found.push(at(), list.children.length);
  return found;
}"""


def test_lists_keep_what_is_unchanged_and_the_focus_follows_its_control(fleet: Page) -> None:
    assert fleet.evaluate(REFILL) == ["c", True, "c", 4, "body", 1]


def test_a_rollout_has_its_progress_and_commands_that_can_be_copied(copying: Page) -> None:
    panel = copying.locator("section", has=copying.get_by_role("heading", name="Rollout", exact=True))
    expect(panel.get_by_role("progressbar")).to_have_attribute("value", "25")
    panel.get_by_role("button", name=re.compile("promote the canary")).click()
    expect(copying.locator("#announcement")).to_have_text("Copied to the clipboard.")
    copied = copying.evaluate("navigator.clipboard.readText()")
    assert (
        copied == "kubectl annotate --overwrite mdep detector -n vision serving.halcyon.dev/promote=detector-7c41d2e9"
    )


def test_conditions_and_pods_are_above_the_charts(page: Page, url: str) -> None:
    page.goto(f"{url}#/assistants/intent")
    expect(page.locator(".problems")).to_contain_text("model.onnx has IR version 11")
    names = page.locator("h2:visible").all_inner_texts()
    assert names.index("What is wrong") < names.index("Conditions") < names.index("Pods") < names.index("Charts")
    page.get_by_role("button", name="Last log lines of intent-b-0").click()
    expect(page.locator("section", has=page.get_by_role("heading", name="Pods"))).to_contain_text(
        "kubectl logs -n assistants intent-b-0 -c triton --tail=100"
    )
    expect(page.get_by_text("To read them with your own permissions, sign in with a token")).to_be_visible()


def test_advice_is_a_table_and_absent_without_any(page: Page, url: str) -> None:
    page.goto(f"{url}#/search/ranker")
    panel = page.locator("section", has=page.get_by_role("heading", name="Advice", exact=True))
    cells = panel.get_by_role("table", name="Advice").locator("tbody tr").first
    expect(cells).to_contain_text("spec.runtime.instancesPerGPU")
    expect(cells).to_contain_text("up to 100 % more requests per second")
    page.goto(f"{url}#/assistants/intent")
    expect(page.get_by_role("heading", name="Conditions")).to_be_visible()
    expect(page.get_by_role("heading", name="Advice", exact=True)).to_have_count(0)


def test_links_lead_to_grafana_alerts_and_the_runbook(page: Page, url: str) -> None:
    page.goto(f"{url}#/assistants/intent")
    for name, start in (
        ("Grafana", "https://grafana.example.org/d/halcyon-model?var-namespace=assistants&var-model=intent"),
        ("Alerts", "https://alerts.example.org/#/alerts?filter=%7Bnamespace%3D%22assistants%22"),
        ("Runbook", "https://runbooks.example.org/HalcyonModelLoadFailed.md"),
    ):
        expect(page.get_by_role("link", name=name, exact=True)).to_have_attribute(
            "href", re.compile("^" + re.escape(start))
        )


@pytest.mark.parametrize(
    ("path", "runbooks"),
    [
        ("speech/diarizer", {"HalcyonModelNotReady", "HalcyonRequestsRejected"}),
        ("search/ranker", {"HalcyonLatencyObjectiveMissed", "HalcyonModelAtMax"}),
        ("fraud/merchant-risk", {"HalcyonMetricMissing"}),
    ],
)
def test_problems_link_to_the_runbooks_that_fit(page: Page, url: str, path: str, runbooks: set[str]) -> None:
    page.goto(f"{url}#/{path}")
    links = page.locator(".problems a")
    expect(links.first).to_be_visible()
    pages = {str(links.nth(index).get_attribute("href")) for index in range(links.count())}
    assert {f"https://runbooks.example.org/{runbook}.md" for runbook in runbooks} <= pages
    assert links.count() == page.locator(".problems li").count()


COMMANDS = """async (limitedBy) => {
  const { commandsFor } = await import("/static/commands.js");
  const model = { namespace: "team", name: "m", max: 4, rollout: null };
  return commandsFor({ model, problems: ["limited"], scaling: { limitedBy }, pods: [], revision: {} }).map((one) => one.command);
}"""


def test_a_higher_maximum_is_a_command_only_if_it_is_the_limit(fleet: Page) -> None:
    assert '"maxReplicas":8' in fleet.evaluate(COMMANDS, ["max"])[0]
    for limits in (["quota"], ["budget", "hold"]):
        assert not [command for command in fleet.evaluate(COMMANDS, limits) if "maxReplicas" in command]


def test_a_longer_range_says_where_it_comes_from(page: Page, url: str) -> None:
    page.goto(f"{url}#/search/ranker")
    page.get_by_role("button", name="30 d").click()
    expect(page.get_by_text("From the site's Prometheus, a point every 2 h.")).to_be_visible()
    expect(page.locator("figure", has_text="Requests per second").first).to_contain_text("There are no values")
    page.reload()
    expect(page.get_by_role("button", name="30 d")).to_have_attribute("aria-pressed", "true")


def test_revisions_are_shown_with_their_differences(page: Page, url: str) -> None:
    page.goto(f"{url}#/vision/detector")
    page.get_by_text("Revisions", exact=True).click()
    expect(page.get_by_label("Changes of detector-5d2a7c10").locator(".drop")).to_contain_text("26.05-py3")
    expect(page.get_by_label("Changes of detector-7c41d2e9").locator(".add")).to_contain_text("value 2")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390], ids=["desktop", "phone"])
def test_no_page_has_an_accessibility_fault_or_overflows(page: Page, url: str, scheme: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    for path in (
        "",
        "#/?problem=any",
        "#/vision/detector",
        "#/assistants/intent",
        "#/search/ranker",
        "#/fraud/merchant-risk",
    ):
        page.goto(f"{url}{path}")
        expect(page.locator(".facts > div" if path.count("/") > 1 else "tbody tr").first).to_be_visible()
        page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        assert axe(page) == [], (path, scheme, width)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def test_5000_models_are_scrolled_without_long_frames(browser: Browser, page: Page, crowded: str) -> None:
    """Figures only."""
    browser.start_tracing(page=page, categories=["disabled-by-default-devtools.timeline"])
    page.goto(crowded)
    expect(page.locator("table")).to_have_attribute("aria-rowcount", str(MANY + 1))
    paint_ms = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    page.evaluate(FRAMES)
    for part in range(1, 11):
        page.locator(".scroller").evaluate(
            "(scroller, part) => scroller.scrollTo(0, (scroller.scrollHeight * part) / 10)", part
        )
        page.wait_for_timeout(300)
    began, used = time.monotonic(), time.process_time()
    page.wait_for_timeout(5000)
    share = (time.process_time() - used) / (time.monotonic() - began)
    tasks, frames = page.evaluate("[window.tasks_ms || [], window.frames_ms]")
    longest_cpu_ms = sorted(task_cpu_ms(browser.stop_tracing()))[-10:]
    add_samples("longest_task_cpu_ms", longest_cpu_ms)
    add_samples("frames_ms", frames)
    add_samples("tasks_ms", tasks)
    record(
        first_paint_of_5000_s=paint_ms / 1000,
        tasks_over_50_ms=len(tasks),
        longest_task_ms=max(tasks, default=0.0),
        frames_over_50_ms=sum(ms > 50 for ms in frames),
        longest_frame_ms=max(frames),
        longest_task_cpu_ms=max(longest_cpu_ms),
        open_page_server_cpu_share=share,
    )
    expect(page.locator("tbody tr").last).to_be_visible()
