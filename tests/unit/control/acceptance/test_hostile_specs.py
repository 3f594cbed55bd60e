"""The specs of the hostile-input table in the plan alone: what a real operator must say of them when nothing stands before it.

Not here: what takes an API server, which are the words of `on` and the deeds (tests/integration/api/test_hostile_specs.py).
"""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from pathlib import Path

import pytest

from halcyon.api.conditions import MESSAGE_LIMIT, Reason
from halcyon.api.policy.site_policy import SitePolicy
from halcyon.control.desired.plan import make
from tests.hostile import POLICY, ROWS, Row
from tests.unit.control.scope_builders import resource, scope_of
from tests.unit.render.rendered import SITE

STRICT = replace(SITE, policy=SitePolicy.model_validate(POLICY))


ROOT = Path(__file__).parents[4]


def test_the_table_has_seventy_rows_and_each_tries_something() -> None:
    assert [row.number for row in ROWS] == list(range(1, 71))
    assert all(row.attempts or row.deed for row in ROWS)
    assert [row.number for row in ROWS if bool(row.beside) != bool(row.why)] == []


@pytest.mark.parametrize("beside", sorted({beside for row in ROWS for beside in row.beside}))
def test_a_test_that_a_row_counts_on_is_there(beside: str) -> None:
    file, _, name = beside.partition("::")
    assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE)


@pytest.mark.parametrize("row", [row for row in ROWS if row.attempts], ids=lambda row: f"{row.number}-{row.tried}")
def test_a_hostile_spec_stored_past_admission_is_rejected_and_makes_nothing(row: Row) -> None:
    for attempt in row.attempts:
        stored = resource() | {"spec": copy.deepcopy(attempt.spec)}
        stored["metadata"]["name"] = attempt.name or "digits"
        planned = make(scope_of(resource=stored, site=STRICT, gateway_api=True))

        assert planned.acceptance.reason in {Reason.INVALID, Reason.POLICY_DENIED}
        assert attempt.off in planned.acceptance.message[:MESSAGE_LIMIT]
        assert (planned.first, planned.then, planned.delete) == ((), (), ())
