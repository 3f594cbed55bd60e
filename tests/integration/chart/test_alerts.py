"""The alerts as the chart renders them: Prometheus' own promtool checks them, and plays a firing and a silent case of each."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from generators.monitoring.alert import THRESHOLDS
from generators.monitoring.alerts import ALERTS
from generators.monitoring.dashboards import DASHBOARDS
from tests.integration import alert_cases, alert_scenes
from tests.integration.charts import CHART, EVERYTHING, find, laid_over, render
from tests.integration.real_prometheus import programs

pytestmark = pytest.mark.more

WIKI = "https://wiki.example.com/halcyon"


def rules(values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    defaults = {"replicas": 2, "monitoring": {"prometheusRule": {"create": True}}}
    groups = find(render(laid_over(defaults, values or {})), "PrometheusRule")["spec"]["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_the_chart_has_every_alert_of_the_list_without_placeholders() -> None:
    rendered = rules()
    assert [rule["alert"] for rule in rendered] == [alert.name for alert in ALERTS]
    assert "__" not in json.dumps(rendered)
    for rule, alert in zip(rendered, ALERTS, strict=True):
        assert rule["labels"] == {"severity": alert.severity}


def test_a_site_leaves_alerts_out() -> None:
    rendered = rules({"monitoring": {"prometheusRule": {"without": ["HalcyonGPUIdle"]}}})
    assert {rule["alert"] for rule in rendered} == {alert.name for alert in ALERTS} - {"HalcyonGPUIdle"}


def test_thresholds_are_values_of_the_chart() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())["monitoring"]["prometheusRule"]["thresholds"]
    assert values == THRESHOLDS
    thresholds = {
        "startSeconds": 1234,
        "errorRatio": 0.123,
        "latencyRatio": 0.011,
        "idleGpuRatio": 0.31,
        "memoryRatio": 0.77,
    }
    rendered = json.dumps(rules({"monitoring": {"prometheusRule": {"thresholds": thresholds}}}))
    assert [key for key, value in thresholds.items() if f"{value}" not in rendered] == []


@pytest.mark.parametrize(
    ("values", "below"),
    [
        ({}, alert_cases.RUNBOOKS),
        ({"runbooks": WIKI}, WIKI),
        ({"runbooks": f"{WIKI}/"}, WIKI),
    ],
    ids=["default", "given", "given with a slash"],
)
def test_every_runbook_link_is_absolute_and_its_page_is_there(values: dict[str, Any], below: str) -> None:
    for rule in rules({"monitoring": {"prometheusRule": values}}):
        link = rule["annotations"]["runbook_url"]
        assert link == f"{below}/{rule['alert']}.md"
        parts = urlsplit(link)
        assert (parts.scheme, bool(parts.hostname)) == ("https", True), link
        assert (CHART.parents[1] / "docs" / "runbooks" / link.rpartition("/")[2]).is_file(), link


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["plain", "everything"])
def test_the_operators_own_series_are_those_of_this_release(values: dict[str, Any]) -> None:
    for rule in rules(values):
        for name, matchers in re.findall(r"(halcyon_(?!model_|agent_)\w+|up)\{([^}]*)\}", rule["expr"]):
            assert 'job="halcyon-metrics",namespace="halcyon-system"' in matchers, (rule["alert"], name)
        for matchers in re.findall(r"halcyon_model_\w+\{([^}]*)\}", rule["expr"]):
            # Of any namespace: it is the model's.
            assert matchers.startswith('job="halcyon-metrics"'), rule["alert"]


def test_every_alert_fires_when_it_should_and_rests_when_it_should(
    tmp_path: Path, record_testsuite_property: Callable[[str, object], None]
) -> None:
    assert [case.name for case in alert_cases.CASES] == [alert.name for alert in ALERTS]
    _play(tmp_path, rules(), alert_cases.tests("rules.yaml"))
    record_testsuite_property("alerts that fire and rest as they should", f"{len(alert_cases.CASES)} of {len(ALERTS)}")


def test_an_alert_of_one_cluster_fires_beside_the_series_of_another(tmp_path: Path) -> None:
    # Both clusters' rules in one Prometheus: each names the cluster of the series, not its own.
    _play(tmp_path, rules({"clusterName": "west"}), alert_cases.tests_of_clusters("rules.yaml"))


def test_alerts_of_models_stay_firing_while_the_leader_changes(tmp_path: Path) -> None:
    _play(tmp_path, rules(), alert_cases.tests_of_new_leaders("rules.yaml"))


def test_incidents_cause_their_alerts_and_normal_operation_causes_none(tmp_path: Path) -> None:
    known = {alert.name for alert in ALERTS}
    assert {name for scene in alert_scenes.INCIDENTS for name in scene.firing} <= known
    _play(tmp_path, rules(), alert_scenes.tests("rules.yaml"))


def _play(folder: Path, alert_rules: list[dict[str, Any]], cases: dict[str, Any]) -> None:
    """Check rules with Prometheus' promtool, and test them with these cases."""
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": alert_rules}]}))
    (folder / "tests.yaml").write_text(yaml.safe_dump(cases, sort_keys=False))
    for arguments in (("check", "rules", "rules.yaml"), ("test", "rules", "tests.yaml")):
        done = subprocess.run(
            [programs() / "promtool", *arguments], cwd=folder, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_dashboards_are_rendered_on_request_for_grafanas_sidecar() -> None:
    assert not [o for o in render() if "dashboard" in o["metadata"]["name"]]
    values = {"dashboards": {"enabled": True, "labels": {"team": "ml"}, "annotations": {"grafana_folder": "Models"}}}
    objects = render(values)
    for name, board in DASHBOARDS.items():
        config_map = find(objects, "ConfigMap", f"halcyon-dashboard-{name}")
        assert config_map["metadata"]["labels"].items() >= {"grafana_dashboard": "1", "team": "ml"}.items()
        assert config_map["metadata"]["annotations"] == {"grafana_folder": "Models"}
        [(file, text)] = config_map["data"].items()
        assert file == f"halcyon-{name}.json"
        assert json.loads(text)["uid"] == board.uid
        assert text == (Path("charts/halcyon/files/monitoring/dashboards") / f"{name}.json").read_text()
