"""`halcyon plan -f FILE`: which objects there would be, and what would change in those that are there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from halcyon.control.desired.plan import make
from halcyon.control.state.scope import Scope
from halcyon.kube import kinds
from halcyon.main import main
from halcyon_cli.arguments.options import Output
from halcyon_cli.errors import ClusterError, NoAccessError
from halcyon_cli.plan import preview
from halcyon_cli.plan.child_diff import ChildDiff, diff_children, merged, restarts
from halcyon_cli.plan.cluster_scope import PlannedScope
from tests.unit.cli.explain.test_report import compared
from tests.unit.cli.plan.test_observations_file import MODEL
from tests.unit.control.scope_builders import applied_children, pod, scope_of

GOLDEN = Path(__file__).parents[1] / "golden"


def no_dry_run(*_: Any) -> None:
    """Nobody can be asked."""


def applied(spec: dict[str, Any] | None = None, now: dict[str, Any] | None = None) -> Scope:
    """A model that was applied, and is asked for something else now."""
    before = scope_of(spec)
    target = make(before).target
    assert target is not None
    pods = tuple(pod(f"digits-a-{n}", ready=True, revision=target.key) for n in range(2))
    return replace(scope_of(now), children=applied_children(before), revisions=(target,), pods=pods)


def diffs_of(now: Scope) -> dict[tuple[str, str], ChildDiff]:
    return {(c.kind, c.name): c for c in diff_children(now, make(now), no_dry_run)}


def page(now: Scope, *notes: str, color: bool = False) -> str:
    planned = make(now)
    listed = diff_children(now, planned, no_dry_run)
    return "\n".join(preview._page(PlannedScope(now, notes), planned, listed, Output("table", color=color))) + "\n"


def test_applied_children_stay_unchanged() -> None:
    now = applied({"replicas": 2}, {"replicas": 2})

    assert {c.change for c in diffs_of(now).values()} == {"same"}
    assert restarts(now, make(now)) == "no model pod would restart: the revision stays the same"


def test_other_replicas_change_replicas_and_restart_nothing() -> None:
    now = applied({"replicas": 2}, {"replicas": 5})
    changed = {child: c.diff for child, c in diffs_of(now).items() if c.change == "change"}

    assert ("Deployment", "digits-a") in changed
    assert "-  replicas: 2" in changed["Deployment", "digits-a"]
    assert "+  replicas: 5" in changed["Deployment", "digits-a"]
    assert restarts(now, make(now)) == "no model pod would restart: the revision stays the same"


def test_a_changed_batch_size_is_a_new_revision_that_replaces_every_server() -> None:
    now = applied(now={"batching": {"maxBatchSize": 8}})
    diffs = diffs_of(now)

    assert restarts(now, make(now)) == "2 model pods would be replaced by rollout.strategy Auto: the revision is new"
    assert "create" in [c.change for (kind, _), c in diffs.items() if kind == "ControllerRevision"]
    assert diffs["Deployment", "digits-a"].change == "change"


def test_children_that_are_no_longer_needed_are_deleted() -> None:
    scaled = {"scaling": {"maxReplicas": 4, "actuator": "HPA"}}
    now = applied(scaled, {"scaling": {"maxReplicas": 4, "actuator": "Direct"}})

    assert diffs_of(now)["HorizontalPodAutoscaler", "digits"].change == "delete"


def test_fields_of_others_are_no_difference() -> None:
    now = applied()
    children = dict(now.children)
    deployment = children[kinds.DEPLOYMENT, "digits-a"]
    children[kinds.DEPLOYMENT, "digits-a"] = {**deployment, "spec": {**deployment["spec"], "paused": False}}

    assert {c.change for c in diffs_of(replace(now, children=children)).values()} == {"same"}


@pytest.mark.parametrize(
    ("live", "desired", "after"),
    [
        ({"a": 1, "b": {"c": 2}}, {"b": {"d": 3}}, {"a": 1, "b": {"c": 2, "d": 3}}),
        ([{"name": "x", "more": 1}], [{"name": "y"}], [{"name": "y", "more": 1}]),
        ([1, 2], [1], [1]),
        ({"cpu": "1000m"}, {"cpu": "1"}, {"cpu": "1000m"}),
    ],
)
def test_applying_leaves_what_it_does_not_name(live: Any, desired: Any, after: Any) -> None:
    assert merged(live, desired) == after


@pytest.mark.parametrize("color", [False, True])
def test_the_page_equals_the_golden_file(color: bool) -> None:
    now = applied({"replicas": 2}, {"replicas": 3, "traffic": {"queueLimit": 77}})

    compared(
        GOLDEN / f"plan-change{'-color' if color else ''}.txt",
        page(now, "you may not read roles: existing ones are treated as absent", color=color),
    )


def test_the_page_of_a_refused_spec() -> None:
    now = applied(now={"batching": {"maxBatchSize": 0}})

    assert "! rejected (Invalid): spec.batching.maxBatchSize is 0" in page(now)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["plan", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_off_line_the_objects_of_a_new_model_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(MODEL)
    status, out, err = run(capsys, "-f", str(file), "--offline", "--no-color")

    assert (status, err) == (0, "")
    compared(GOLDEN / "plan-offline.txt", out)
    status, out, _ = run(capsys, "-f", str(file), "--offline", "-o", "report")
    document = json.loads(out)
    assert document["accepted"] is True
    assert {child["change"] for child in document["children"]} == {"create"}
    assert ("Deployment", "m-a") in {
        (child["kind"], child["object"]["metadata"]["name"]) for child in document["children"]
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--offline", "--memory", "x.json"], "--memory is for the planner, which needs --observations"),
        (["--offline", "--latency", "300ms"], "--latency is for the planner, which needs --observations"),
        (["--offline", "--min", "0"], "--min is for the planner, which needs --observations"),
        (["--offline", "--idle-after", "5m"], "--idle-after is for the planner, which needs --observations"),
        (["--offline", "--start-time", "90s"], "--start-time is for the planner, which needs --observations"),
        (["--offline", "--every"], "--every is for the planner, which needs --observations"),
        (["-n", "b"], "m has namespace a, and -n is b; omit -n"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(MODEL.replace("{name: m}", "{name: m, namespace: a}"))
    status, _, err = run(capsys, "-f", str(file), *options)

    assert status == 2
    assert message in err


@pytest.mark.parametrize(
    ("error", "rejections"),
    [
        (ClusterError("the cluster at c rejects it"), ["Deployment m-a: the cluster at c rejects it"]),
        (NoAccessError("the user may not do it"), []),
    ],
)
def test_a_rejected_dry_run_is_a_note(error: ClusterError, rejections: list[str]) -> None:
    class Rejecting:
        def dry_run(self, *_: object) -> None:
            raise error

    noted: list[str] = []
    cluster: Any = Rejecting()
    assert preview._cluster_dry_run(cluster, noted)(kinds.DEPLOYMENT, {"metadata": {"name": "m-a"}}) is None
    assert noted == rejections
