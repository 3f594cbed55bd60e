"""The dashboards, by the rules that Grafana's format has, and by what a reader needs."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest

from generators.chart_values import TYPES
from generators.monitoring.alerts import ALERTS
from generators.monitoring.dashboards import DASHBOARDS
from generators.monitoring.grafana import COLUMNS, SOURCE, GrafanaDashboard, Panel, PanelRow, Query, dashboard

BOARDS = {name: dashboard(board) for name, board in DASHBOARDS.items()}
OF_GRAFANA = {"__rate_interval", "__all"}


def of(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


@pytest.mark.parametrize("name", BOARDS)
def test_a_dashboard_has_what_grafana_needs(name: str) -> None:
    board = BOARDS[name]
    assert json.loads(json.dumps(board)) == board, "JSON and nothing else"
    assert re.fullmatch(r"[a-z-]{1,40}", board["uid"])
    assert board["schemaVersion"] >= 36
    assert board["title"].startswith("Halcyon / ")
    assert board["description"]
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(numbers) == len(set(numbers))
    assert {panel["type"] for panel in board["panels"]} <= {"row", "timeseries", "stat", "table", "state-timeline"}


def test_dashboards_are_found_apart() -> None:
    assert (
        len({board["uid"] for board in BOARDS.values()})
        == len({board["title"] for board in BOARDS.values()})
        == len(BOARDS)
    )


@pytest.mark.parametrize("name", BOARDS)
def test_panels_lie_beside_each_other_and_none_over_another(name: str) -> None:
    occupied: set[tuple[int, int]] = set()
    for panel in BOARDS[name]["panels"]:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= COLUMNS
        cells = set(
            itertools.product(range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"]))
        )
        assert not cells & occupied, panel["title"]
        occupied |= cells


@pytest.mark.parametrize("name", BOARDS)
def test_every_panel_shows_its_meaning_unit_and_lines(name: str) -> None:
    for panel in of(BOARDS[name]):
        assert panel["title"], panel
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["datasource"] == SOURCE
        letters = [target["refId"] for target in panel["targets"]]
        assert letters == sorted(set(letters)) != []
        for target in panel["targets"]:
            assert target["datasource"] == SOURCE
            assert target["legendFormat"], panel["title"]
            assert target["instant"] != target["range"]
            assert (target["format"] == "table") == (panel["type"] == "table")


@pytest.mark.parametrize("name", BOARDS)
def test_variables_are_used_if_and_only_if_defined(name: str) -> None:
    board = BOARDS[name]
    defined = {variable["name"] for variable in board["templating"]["list"]}
    text = json.dumps([board["panels"], [v.get("definition", "") for v in board["templating"]["list"]]])
    used = set(re.findall(r"\$\{?(\w+)", text)) - OF_GRAFANA
    assert used == defined


@pytest.mark.parametrize("name", BOARDS)
def test_a_legend_names_only_labels_that_the_query_leaves(name: str) -> None:
    for panel in of(BOARDS[name]):
        for target in panel["targets"]:
            labels = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            outer = re.match(r"(?:topk\(10, )?(?:sum|max|avg|count) by \(([^)]*)\)", target["expr"])
            left = {label.strip() for label in outer[1].split(",")} if outer else {"instance"}
            assert labels <= left | (
                {"cluster", "namespace", "model_deployment"} if "histogram_quantile" in target["expr"] else set()
            ), target["expr"]


@pytest.mark.parametrize("name", BOARDS)
def test_every_query_selects_clusters_and_keeps_those_of_a_model_apart(name: str) -> None:
    for panel in of(BOARDS[name]):
        for target in panel["targets"]:
            selectors = re.findall(r"\{([^{}]*)\}", target["expr"])
            assert selectors, target["expr"]
            assert all(selector.startswith('cluster=~"$cluster"') for selector in selectors), target["expr"]
            groups = re.findall(r"by \(([^)]*)\)", target["expr"])
            assert all("cluster" in group for group in groups if "model_deployment" in group), target["expr"]
    (variable,) = [entry for entry in BOARDS[name]["templating"]["list"] if entry["name"] == "cluster"]
    assert (variable["includeAll"], variable["allValue"]) == (True, ".*"), "series without the label are selected too"


@pytest.mark.parametrize("name", BOARDS)
def test_replicas_of_the_operator_in_several_clusters_are_kept_apart(name: str) -> None:
    """Each replica has all models in its cache, so one counts for a cluster; addresses of pods repeat between clusters."""
    for panel in of(BOARDS[name]):
        for target in panel["targets"]:
            groups = re.findall(r"by \(([^)]*)\)", target["expr"])
            assert all("cluster" in group for group in groups if "instance" in group), target["expr"]
            assert not re.search(r"\b(max|min|avg)\(", target["expr"]), target["expr"]
            assert ("{{instance}}" in target["legendFormat"]) <= ("{{cluster}}" in target["legendFormat"]), panel[
                "title"
            ]


@pytest.mark.parametrize("name", BOARDS)
def test_targets_of_the_queue_count_one_replica_at_least(name: str) -> None:
    """Without a ready replica, requests wait for the first one; see the number `queue target`."""
    for panel in of(BOARDS[name]):
        for target in panel["targets"]:
            if "halcyon_model_queue_target_requests" in target["expr"]:
                assert (
                    "clamp_min(max by (cluster, namespace, model_deployment) (halcyon_model_replicas_ready"
                    in target["expr"]
                )


@pytest.mark.parametrize("name", BOARDS)
def test_all_selects_no_program_but_halcyon(name: str) -> None:
    variables = {variable["name"]: variable for variable in BOARDS[name]["templating"]["list"]}
    anything = {f'{label}=~"${label}"' for label, variable in variables.items() if variable.get("allValue")}
    for panel in of(BOARDS[name]):
        for target in panel["targets"]:
            for metric, selector in re.findall(r"(\w+)\{([^{}]*)\}", target["expr"]):
                if not metric.startswith("halcyon_"):
                    assert set(selector.split(",")) - anything, target["expr"]


@pytest.mark.parametrize("name", BOARDS)
def test_ages_of_values_do_not_grow_between_two_scrapes(name: str) -> None:
    """`time()` grows by the scrape interval, in which the value is not read again; `timestamp` is that of the scrape."""
    expressions = [target["expr"] for panel in of(BOARDS[name]) for target in panel["targets"]]
    assert [text for text in expressions if re.search(r"\btime\(\)", text)] == []


@pytest.mark.parametrize("name", BOARDS)
def test_a_number_without_any_data_is_unknown_and_not_zero(name: str) -> None:
    """While no operator can be scraped, a green 0 of models that aren't ready would be wrong."""
    for panel in of(BOARDS[name]):
        for target in panel["targets"]:
            assert not re.search(r"\b(vector|absent)\(", target["expr"]), panel["title"]


def test_unhealthy_conditions_of_the_fleet_are_those_that_cause_alerts() -> None:
    [panel] = [panel for panel in of(BOARDS["fleet"]) if panel["title"] == "Unhealthy conditions"]
    shown = set(re.findall(r"\w+", " ".join(re.findall(r'type=~"([^"]*)"', panel["targets"][0]["expr"]))))
    alerts = " ".join(alert.expression for alert in ALERTS)
    causes = set(re.findall(r"\w+", " ".join(re.findall(r'halcyon_model_condition\{__JOB__,type=~?"([^"]*)"', alerts))))

    assert causes - shown <= {"Reconciling"}, "a rollout in progress is no problem"


def test_a_panel_that_does_not_fit_begins_a_new_line() -> None:
    def panel(width: int, height: int) -> Panel:
        return Panel("t", "d.", (Query("up", "l"),), width=width, height=height)

    board = GrafanaDashboard(
        "u", "t", "d", (PanelRow("r", (panel(12, 4), panel(8, 9), panel(12, 4))), PanelRow("s", (panel(24, 3),)))
    )
    places = [panel["gridPos"] for panel in dashboard(board)["panels"]]
    assert [(p["x"], p["y"]) for p in places] == [(0, 0), (0, 1), (12, 1), (0, 10), (0, 14), (0, 15)]


def test_scrape_intervals_of_the_chart_fit_twice_into_windows_of_alerts() -> None:
    windows_s = [60 * int(minutes) for alert in ALERTS for minutes in re.findall(r"\[(\d+)m\]", alert.expression)]
    units_s = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
    pattern = re.compile(TYPES["interval"]["pattern"])
    allowed_s = [n * s for unit, s in units_s.items() for n in (*range(1, 1000), 99_999) if pattern.match(f"{n}{unit}")]
    assert {1, 15, 30, 60, 120} <= set(allowed_s)
    assert max(allowed_s) <= min(windows_s) / 2
