"""Figures of the fault campaigns: what is counted, and which targets hold."""

from typing import Any

from benchmarks.hold.faults import crash, disturb, jobs, mutate, views
from benchmarks.hold.faults_page import rows
from benchmarks.quality.rows import Row, holds
from tests.faults.mutations import Mutation
from tests.faults.oracles import Counts, Outcome
from tests.faults.plans import MODEL, Point, crashes
from tests.faults.results import Reference, Result, Results
from tests.faults.tested_code import Code
from tests.faults.workloads import WORKLOADS

POINTS = [Point(MODEL, "PATCH", "services/m", number) for number in (1, 2)]
MODULES = {f"halcyon.m{number}": "a" for number in range(100)}
PRESENT = Code(MODULES, "s", "c2", "2026-11-29T12:00:00Z")
REPLICAS = [
    Mutation("replicas", "unset", None),
    Mutation("replicas", "changed", 2),
    Mutation("replicas", "invalid", "x"),
]


def earlier(*, modules: int = 0, schema: str = "s") -> Code:
    """A version of the code that differs in some modules from the present one."""
    return Code({**MODULES, **{f"halcyon.m{n}": "b" for n in range(modules)}}, schema, "c1", "2026-11-28T12:00:00Z")


def campaign(
    *, problems: dict[str, list[str]] | None = None, left_out: int = 0, code: Code = PRESENT
) -> dict[str, Results]:
    """Complete crash campaigns of all workloads, but for some plans."""
    known = {name: Results(name) for name in (*WORKLOADS, "views", "mutations")}
    for name in WORKLOADS:
        known[name].reference = Reference(POINTS, Outcome({}, Counts()), code=code.digest)
        for plan in crashes(name, POINTS)[left_out:]:
            known[name].add(plan.id, Result(True, (problems or {}).get(plan.id, []), "c", code.digest))
    return known


def rows_of(known: dict[str, Results], mutations: Any = tuple(REPLICAS[:1]), code: Code = PRESENT) -> list[Row]:
    """Rows of these results, with both versions of the code known."""
    return rows(known, mutations, {version.digest: version for version in (PRESENT, code)}, PRESENT)


def test_crash_points_hold_when_all_plans_have_run_without_a_divergence() -> None:
    assert holds(rows_of(campaign())[0])
    assert not holds(rows_of(campaign(left_out=1))[0])


def test_one_divergence_is_enough_to_fall_short() -> None:
    plan = crashes("create", POINTS)[0].id
    row = rows_of(campaign(problems={plan: ["Pod m-a: created 2 times, should be 1"]}))[0]
    assert row.value["divergences"] == 1
    assert not holds(row)


def test_results_of_slightly_older_code_count_and_are_named_by_commit() -> None:
    code = earlier(modules=5)
    row = rows_of(campaign(code=code), code=code)[0]
    assert holds(row)
    assert (row.value["on this code"], row.value["on earlier code"]) == (0, 4 * len(WORKLOADS))
    assert f"{4 * len(WORKLOADS)} on c1" in row.why


def test_results_of_code_that_has_changed_much_do_not_count() -> None:
    for code in (earlier(modules=6), earlier(schema="other")):
        row = rows_of(campaign(code=code), code=code)[0]
        assert (row.value["run"], row.value["on earlier code"]) == (0, 0)
        assert not holds(row)


def test_crashes_at_former_points_of_a_workload_do_not_count() -> None:
    known = campaign()
    known["create"].add("create/crash-before/model:PATCH:services/former:1", Result(True, ["a"], "c", PRESENT.digest))
    row = rows_of(known)[0]
    assert (row.value["run"], row.value["divergences"]) == (4 * len(WORKLOADS), 0)


def test_refused_mutations_count_while_the_schema_is_the_same() -> None:
    code = earlier(modules=50)
    for version, count in ((code, 1), (earlier(modules=50, schema="other"), 0)):
        known = campaign()
        known["mutations"].add("replicas/unset/null", Result(False, [], "c", version.digest))
        known["mutations"].add("replicas/changed/2", Result(True, [], "c", version.digest))
        assert rows_of(known, REPLICAS, version)[2].value["mutations"] == count


def test_mutations_are_counted_by_field_and_kind_of_problem() -> None:
    known = campaign()
    for plan, result in {
        "replicas/unset/null": Result(True, [], "c", PRESENT.digest),
        "replicas/changed/2": Result(True, ["silent: a", "recovery: b"], "c", PRESENT.digest),
        'replicas/invalid/"x"': Result(False, ["refused without the field's name: c"], "c", PRESENT.digest),
    }.items():
        known["mutations"].add(plan, result)
    value = rows_of(known, [*REPLICAS, Mutation("model.name", "unset", None)])[2].value
    assert (value["mutations"], value["of"], value["percent of leaf fields"]) == (3, 4, 50.0)
    assert (value["silent"], value["unrecovered"], value["other problems"]) == (1, 1, 1)


def test_controls_with_a_difference_are_false_alarms() -> None:
    known = campaign()
    before = rows_of(known)[4].value["false alarms"]
    known["create"].add("create/none/2", Result(False, ["a difference"], "c", PRESENT.digest))
    row = rows_of(known)[4]
    assert row.value["false alarms"] == before + 1
    assert row.value["controls"] == 1


def test_lanes_share_the_workloads_and_one_writes_each_common_file() -> None:
    names = list(WORKLOADS)
    for lanes in (1, 2, 3):
        shares = [jobs(["2.1", "2.2", "2.3"], names, lane, lanes) for lane in range(lanes)]
        for campaign in (crash, disturb):
            assert sorted(
                name for share in shares for c, chosen in share if c is campaign for name in chosen
            ) == sorted(names)
        for campaign in (views, mutate):
            assert [list(chosen) for share in shares for c, chosen in share if c is campaign] == [names]
    assert jobs(["2.3"], names, 0, 2) == []
