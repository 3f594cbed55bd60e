"""What `halcyon explain` tells of a ModelDeployment: the whole text as golden files, and what must hold for any status.

HALCYON_UPDATE_GOLDEN=1 writes the files anew.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.scaling.hpa.recommendation import LimitKind
from halcyon.scaling.planner.outputs import LimitName
from halcyon.scaling.policy.decision import ReplicaLimitName
from halcyon_cli.explain.build import LIMITS, insufficient_for, report
from halcyon_cli.kube.free_capacity import FreeCapacity, Holder
from halcyon_cli.output.report_text import ago, render
from tests.unit.cli.explained_models import AT, SITUATIONS

GOLDEN = Path(__file__).parents[1] / "golden"
NOW = datetime.fromtimestamp(AT + 3, UTC)
ROOMS = {"rising": (FreeCapacity("nvidia.com/gpu", 8, 0, 0, 3, (Holder("batch/train", 4), Holder("team/digits", 4))),)}
"""Of what the pods of a situation find too little of."""


def compared(file: Path, explained: str) -> None:
    if os.environ.get("HALCYON_UPDATE_GOLDEN"):
        file.write_text(explained)
    assert explained == file.read_text(), "HALCYON_UPDATE_GOLDEN=1 writes the file anew; look at the difference"


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_report_equals_the_golden_file(name: str) -> None:
    explained = report(SITUATIONS[name]().resource(), NOW, ROOMS.get(name, ()))

    compared(GOLDEN / f"{name}.txt", render(explained, NOW) + "\n")


def test_the_json_report_equals_the_golden_file() -> None:
    explained = report(SITUATIONS["rising"]().resource(), NOW, ROOMS["rising"])

    compared(GOLDEN / "rising.json", json.dumps(explained.to_dict(), indent=2) + "\n")


def test_advice_is_shown_with_its_patch() -> None:
    resource = SITUATIONS["rising"]().resource()
    resource["status"]["advice"] = [
        {
            "rule": "BatchAlwaysFull",
            "field": "spec.batching.maxBatchSize",
            "currentValue": "8",
            "value": "16",
            "evidence": "batches have 7.9 of at most 8 rows",
            "gain": "45 % more rows per second",
            "gainPercent": 31,
            "since": "2026-11-19T07:00:00Z",
        },
        {"rule": "DelayOnlyCosts", "field": "spec.batching.maxQueueDelay", "value": "0us"},
        {"rule": "Broken", "field": "metadata.name", "value": "other"},
        {"rule": "Broken", "value": 3},
    ]
    explained = report(resource, NOW)
    assert [advice.patch for advice in explained.advice] == [
        {"spec": {"batching": {"maxBatchSize": 16}}},
        {"spec": {"batching": {"maxQueueDelay": "0us"}}},
    ]
    lines = [" ".join(line.split()) for line in render(explained, NOW, width=140).splitlines()]
    assert "ADVICE NOW ADVISED FOR GAIN AND EVIDENCE" in lines
    assert "spec.batching.maxBatchSize 8 16 3h 45 % more rows per second: batches have 7.9 of at most 8 rows" in lines
    assert explained.to_dict()["advice"][0]["patch"] == {"spec": {"batching": {"maxBatchSize": 16}}}


def test_missing_resources_are_read_from_the_status_while_pods_are_unschedulable() -> None:
    resource = SITUATIONS["rising"]().resource()

    assert insufficient_for(resource) == ["nvidia.com/gpu"]
    resource["status"]["pods"]["unschedulable"] = 0
    assert insufficient_for(resource) == []
    assert insufficient_for({}) == []


def test_every_limit_that_can_be_named_is_explained() -> None:
    assert set(LIMITS) == {*get_args(LimitName), *get_args(LimitKind), *get_args(ReplicaLimitName)}


def test_a_spec_change_that_the_operator_has_not_seen_is_reported() -> None:
    resource = SITUATIONS["fixed"]().resource()
    resource["metadata"]["generation"] = 4

    (note,) = (n for n in report(resource, NOW).notes if n.condition == "Behind")
    assert "the spec has generation 4, and this report is of 1" in note.message


def test_a_resource_that_no_operator_has_seen_points_to_the_operator() -> None:
    resource = SITUATIONS["undecided"]().resource() | {"status": {}}

    assert "the operator has not processed it yet" in report(resource, NOW).headline


def test_a_model_in_deletion_says_so() -> None:
    resource = SITUATIONS["fixed"]().resource()
    resource["metadata"]["deletionTimestamp"] = "2026-11-19T09:00:00Z"

    assert report(resource, NOW).notes[0].message == "the ModelDeployment is being deleted"


def test_replicas_outside_the_limits_are_shown_as_in_force() -> None:
    resource = SITUATIONS["paused"]().resource()
    resource["spec"]["replicas"] = 30

    assert report(resource, NOW).replicas == 8


def test_replicas_below_the_minimum_are_shown_if_a_schedule_allows_them() -> None:
    resource = SITUATIONS["schedules"]().resource()
    resource["spec"]["replicas"], resource["spec"]["scaling"]["minReplicas"] = 2, 4

    assert report(resource, NOW.replace(hour=23)).replicas == 2


def test_surplus_pods_are_shown_as_such() -> None:
    resource = SITUATIONS["paused"]().resource()
    resource["spec"]["replicas"] = 2

    assert "pods        2 desired, 3 ready\n" in render(report(resource, NOW), NOW)


def test_schedules_are_those_of_the_reports_time() -> None:
    resource = SITUATIONS["schedules"]().resource()
    limits = report(resource, NOW.replace(hour=23)).limits

    assert limits is not None
    assert [(w.name, w.max_replicas) for w in limits.open] == [("night", 2)]
    assert (limits.low, limits.high) == (0, 2)
    assert limits.upcoming is not None
    assert limits.upcoming.opens.isoformat() == "2026-11-20T08:00:00+01:00"


def test_a_spec_that_breaks_a_rule_is_reported_without_its_schedules() -> None:
    resource = SITUATIONS["schedules"]().resource()
    resource["spec"]["scaling"]["schedules"][0]["start"] = "when I come in"
    limits = report(resource, NOW).limits

    assert limits is not None
    assert (limits.low, limits.high, limits.open) == (0, 8, ())


def test_colour_changes_no_letter() -> None:
    explained = report(SITUATIONS["rising"]().resource(), NOW)
    coloured = render(explained, NOW, color=True)

    assert "\x1b[1mteam/digits\x1b[0m: 6 replicas" in coloured
    for code in ("\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[33m"):
        coloured = coloured.replace(code, "")
    assert coloured == render(explained, NOW)


@pytest.mark.parametrize(("width", "widest"), [(20, 100), (80, 100), (100, 100), (300, 140)])
@pytest.mark.parametrize("name", SITUATIONS)
def test_lines_are_as_wide_as_the_terminal_if_their_words_allow_it(name: str, width: int, widest: int) -> None:
    explained = report(SITUATIONS[name]().resource(), NOW)

    assert max(len(line) for line in render(explained, NOW, width=width).splitlines()) <= widest


def test_a_message_cannot_steer_the_terminal() -> None:
    resource = SITUATIONS["rising"]().resource()
    resource["status"]["scaling"]["why"] = "6 replicas: \x1b]0;mine\x07 and\nmore"

    assert render(report(resource, NOW), NOW).startswith(
        "team/digits: 6 replicas, as desired: \ufffd]0;mine\ufffd and more\n"
    )


@pytest.mark.parametrize(
    ("seconds", "age"),
    [
        (-5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (7199, "119m"),
        (7200, "2h"),
        (172_799, "47h"),
        (172_800, "2d"),
    ],
)
def test_ages_are_in_the_largest_unit_of_which_there_are_two(seconds: int, age: str) -> None:
    assert ago(NOW - timedelta(seconds=seconds), NOW) == age


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def spoilt(draw: st.DrawFn) -> dict[str, Any]:
    """A resource in whose status, at one place, stands something else."""
    resource = SITUATIONS[draw(st.sampled_from(sorted(SITUATIONS)))]().resource()
    place: Any = resource
    path: Any = draw(st.sampled_from(["metadata", "spec", "status"]))
    while isinstance(place[path], dict | list) and place[path] and draw(st.booleans()):
        place = place[path]
        path = draw(st.sampled_from(sorted(place))) if isinstance(place, dict) else len(place) - 1
    place[path] = draw(JSON)
    return resource


@given(spoilt())
def test_a_status_of_another_form_is_shown_as_far_as_readable(resource: dict[str, Any]) -> None:
    explained = report(resource, NOW)

    # Wrapped wherever a spoilt name makes the line too long.
    assert f": {explained.replicas} replica" in " ".join(render(explained, NOW).split())
    assert json.loads(json.dumps(explained.to_dict()))["headline"] == explained.headline
