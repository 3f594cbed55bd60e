"""Every alert has a page that says how to confirm it and what to do; and the page's words are true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from generators.monitoring import reference
from generators.monitoring.alert import Alert
from generators.monitoring.alerts import ALERTS
from generators.monitoring.dashboards import DASHBOARDS
from halcyon_cli.commands.app import COMMANDS
from tests.unit.monitoring.test_metric_lists import NAMES, WORDS

DOCS = Path(__file__).parents[3] / "docs"
PAGES = DOCS / "runbooks"
SECTIONS = ["What it means", "Confirm", "Likely causes", "What to do"]
HALCYON = {command for group in COMMANDS.values() for command in group}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_every_alert_has_a_page_with_every_section(alert: Alert) -> None:
    text = (PAGES / f"{alert.name}.md").read_text()
    assert text.startswith(f"# {alert.name}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    for section in text.split("## ")[1:]:
        assert len(section.splitlines()) > 2, section


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_pages_name_commands_metrics_and_files_that_exist(page: Path) -> None:
    text = page.read_text()
    assert set(re.findall(r"kubectl halcyon (\w+)", text)) <= HALCYON
    assert {re.sub("_bucket$|(?<=_seconds)_count$", "", name) for name in WORDS.findall(text)} - {"up"} <= NAMES
    for target in re.findall(r"\]\(([^)#]+)", text):
        assert (page.parent / target).exists(), target
    assert set(re.findall(r"Halcyon / \w+", text)) <= {board.title for board in DASHBOARDS.values()}


def test_queries_of_a_runbook_have_every_rate_of_its_alert() -> None:
    """A query that leaves out a part of the sum shows 0 while the alert fires."""
    lacking = {}
    for alert in ALERTS:
        text = (PAGES / f"{alert.name}.md").read_text()
        queries = " ".join(re.findall(r"^```promql\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
        missing = set(re.findall(r"rate\((\w+)", str(alert))) - set(re.findall(r"rate\((\w+)", queries))
        if missing:
            lacking[alert.name] = missing
    assert lacking == {}


def test_alerts_and_runbooks_read_the_logs_of_all_pods() -> None:
    """`kubectl logs deployment/NAME` reads one pod of the Deployment, which may be the standby."""
    texts = {page.stem: page.read_text() for page in PAGES.glob("*.md")} | {
        alert.name + " alert": str(alert) for alert in ALERTS
    }
    assert [name for name, text in texts.items() if re.search(r"logs deploy(ment)?/", text)] == []


def test_pages_of_removed_alerts_are_gone() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == {alert.name for alert in ALERTS} | {"README"}
    index = (PAGES / "README.md").read_text()
    assert all(f"({alert.name}.md)" in index for alert in ALERTS)


def test_the_reference_lists_every_metric_and_alert() -> None:
    page = reference.page()
    assert page == (DOCS / "reference" / "metrics.md").read_text()
    assert all(f"({'../runbooks/'}{alert.name}.md)" in page for alert in ALERTS)
