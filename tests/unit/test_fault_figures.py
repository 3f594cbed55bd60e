"""Figures of the fault campaigns: what is counted, and which targets hold."""

from benchmarks.hold.faults_page import rows
from benchmarks.quality.rows import holds
from tests.faults.oracles import Counts, Outcome
from tests.faults.plans import MODEL, Point, crashes
from tests.faults.results import Reference, Result, Results
from tests.faults.workloads import WORKLOADS

POINTS = [Point(MODEL, "PATCH", "services/m", number) for number in (1, 2)]


def campaign(*, problems: dict[str, list[str]] | None = None, left_out: int = 0) -> dict[str, Results]:
    """Complete crash campaigns of all workloads, but for some plans."""
    known = {name: Results(name) for name in (*WORKLOADS, "views", "mutations")}
    for name in WORKLOADS:
        known[name].reference = Reference(POINTS, Outcome({}, Counts()))
        for plan in crashes(name, POINTS)[left_out:]:
            known[name].results[plan.id] = Result(True, (problems or {}).get(plan.id, []), "c")
    return known


def test_crash_points_hold_when_all_plans_have_run_without_a_divergence() -> None:
    assert holds(rows(campaign(), 1, ["replicas"])[0])
    assert not holds(rows(campaign(left_out=1), 1, ["replicas"])[0])


def test_one_divergence_is_enough_to_fall_short() -> None:
    plan = crashes("create", POINTS)[0].id
    row = rows(campaign(problems={plan: ["Pod m-a: created 2 times, should be 1"]}), 1, ["replicas"])[0]
    assert row.value["divergences"] == 1
    assert not holds(row)


def test_mutations_are_counted_by_field_and_kind_of_problem() -> None:
    known = campaign()
    known["mutations"].results |= {
        "replicas/unset/null": Result(True, [], "c"),
        "replicas/changed/2": Result(True, ["silent: a", "recovery: b"], "c"),
        'replicas/invalid/"x"': Result(False, ["refused without the field's name: c"], "c"),
    }
    value = rows(known, 4, ["replicas", "replicas", "model.name"])[2].value
    assert (value["mutations"], value["of"], value["percent of leaf fields"]) == (3, 4, 50.0)
    assert (value["silent"], value["unrecovered"], value["other problems"]) == (1, 1, 1)


def test_controls_with_a_difference_are_false_alarms() -> None:
    known = campaign()
    known["create"].results["create/none/2"] = Result(False, ["a difference"], "c")
    row = rows(known, 1, ["replicas"])[4]
    assert row.value["false alarms"] >= 1
    assert row.value["controls"] == 1
