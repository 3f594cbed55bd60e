"""What the documents show of scaling is what the code says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from halcyon.api.spec import defaults
from halcyon.api.spec.parse import parse
from halcyon.main import main
from halcyon.scaling.planner.objectives import schedules
from halcyon.scaling.schedules import problems
from halcyon_cli.explain.build import LIMITS
from tests.yaml_text import loaded

ROOT = Path(__file__).parents[4]
SCALING = (ROOT / "docs/concepts/scaling.md").read_text()
PLANNER = ROOT / "manifests/examples/planner.yaml"


def readme() -> dict[str, Any]:
    """The README's ModelDeployment."""
    (block,) = re.findall(r"```yaml\n(apiVersion: serving.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    document: dict[str, Any] = loaded(block)
    return document


@pytest.mark.parametrize("resource", [readme(), loaded(PLANNER.read_text())], ids=["README", "planner.yaml"])
def test_an_example_is_accepted_and_every_field_of_it_counts(resource: dict[str, Any]) -> None:
    spec = parse(resource["metadata"]["name"], resource["spec"])

    assert problems(schedules(spec)) == ()
    assert defaults.ignored(spec) == ()
    assert defaults.policy(spec) == "Planner"


def test_the_example_of_the_planner_can_be_planned(capsys: pytest.CaptureFixture[str]) -> None:
    record = ROOT / "manifests/examples/observations.json"

    assert main(["plan", "-f", str(PLANNER), "--observations", str(record)]) == 0
    assert re.search(r"\n  schedule night +at most 3\n", capsys.readouterr().out)


def test_the_documented_output_of_explain_is_its_output() -> None:
    golden = (Path(__file__).parents[1] / "golden/rising.txt").read_text()

    assert f"```console\n$ halcyon explain digits -n team\n{golden}```" in SCALING


def test_every_limit_is_in_the_table() -> None:
    table = SCALING[SCALING.index("| limited by |") :].split("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", table))

    assert named == set(LIMITS) | {"behavior"}


def test_the_schedules_shown_can_be_read() -> None:
    (block,) = (shown for shown in re.findall(r"```yaml\n(spec:.*?)```", SCALING, re.DOTALL) if "schedules:" in shown)
    model = {"source": {"persistentVolumeClaim": {"claimName": "models"}}}
    spec = parse("m", {"model": model, **loaded(block)["spec"]})

    assert problems(schedules(spec)) == ()
    assert [schedule.name for schedule in schedules(spec)] == ["office-hours", "night"]
