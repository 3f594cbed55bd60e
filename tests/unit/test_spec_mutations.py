"""Mutations of specs: all leaf fields of the CRD, from valid beginnings, each value once, and what the schema says about it."""

import json
from collections import Counter

import pytest

from halcyon.api.spec.parse import SpecError, parse
from halcyon.control.desired.plan import make
from tests.faults.mutations import Leaf, begin, changed, get, leaves, mutations
from tests.integration.operator_process import crd
from tests.unit.control.scope_builders import is_valid, scope_of

SCHEMA = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
LEAVES = list(leaves(SCHEMA))
MUTATIONS = [mutation for leaf in LEAVES for mutation in mutations(leaf)]
METRICS = "rollout.canary.analysis.metrics"
"""Field that a site without a Prometheus refuses."""


def test_mutations_cover_all_leaf_fields_and_kinds() -> None:
    all_mutations = MUTATIONS
    assert len({leaf.path for leaf in LEAVES}) == len(LEAVES) >= 190
    assert {mutation.path for mutation in all_mutations} == {leaf.path for leaf in LEAVES}
    assert len(all_mutations) >= 1000
    assert len({mutation.id for mutation in all_mutations}) >= 0.99 * len(all_mutations)
    kinds = Counter(mutation.kind for mutation in all_mutations)
    assert kinds.keys() == {"unset", "changed", "bound", "invalid", "semantic"}
    assert kinds["unset"] == len(LEAVES)


def test_beginnings_are_valid_and_set_the_field() -> None:
    for leaf in LEAVES:
        spec = begin(leaf.path)
        assert get(spec, leaf.path) is not None, leaf.path
        parse("digits", spec)
        accepted = make(scope_of(spec)).acceptance
        assert accepted.accepted or leaf.path.startswith((METRICS, "scaling.targets.metric")), accepted


def test_changed_values_and_bounds_are_valid_by_the_schema() -> None:
    wrong = []
    for mutation in (mutation for mutation in MUTATIONS if mutation.kind in {"changed", "bound"}):
        try:
            parse("digits", changed(begin(mutation.path), mutation.path, mutation.value))
        except SpecError as error:
            # Rules over several fields may refuse a value that the field's own schema allows.
            if "must be a" in str(error) or "must match" in str(error):
                wrong.append(f"{mutation.id}: {error}")
    assert wrong == []


def test_invalid_values_are_refused() -> None:
    invalid = [mutation for mutation in MUTATIONS if mutation.kind == "invalid"][::7]
    assert len(invalid) > 200
    assert [m.id for m in invalid if is_valid(changed(begin(m.path), m.path, m.value))] == []


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("a.b", 1, {"a": {"b": 1}}),
        ("a.[].b", 1, {"a": [{"b": 1}]}),
        ("c", None, {}),
    ],
)
def test_fields_are_set_with_their_parents(path: str, value: object, expected: object) -> None:
    assert changed({}, path, value) == expected
    assert get(expected, path) == value


def test_bounds_of_durations_and_sizes_come_from_their_rules() -> None:
    leaf = next(leaf for leaf in LEAVES if leaf.path == "traffic.queueTimeout")
    values = {mutation.value for mutation in mutations(leaf) if mutation.kind == "bound"}
    assert values == {"10ms", "1h"}


def test_values_are_not_the_field_s_own() -> None:
    leaf = Leaf("replicas", {"type": "integer", "minimum": 0, "maximum": 1000})
    values = [json.dumps(mutation.value) for mutation in mutations(leaf)]
    assert json.dumps(get(begin("replicas"), "replicas")) not in values
    assert len(set(values)) == len(values)
