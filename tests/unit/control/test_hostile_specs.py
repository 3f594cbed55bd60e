"""The specs of the hostile-input table in the plan alone: what a real operator must say of them when nothing stands before it.

The table against a real API server, with admission on and off, and with its deeds: tests/integration/test_hostile.py.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from halcyon.api.conditions import MESSAGE_LIMIT, Reason
from halcyon.api.site_policy import SitePolicy
from halcyon.control.plan import make
from tests.hostile import POLICY, ROWS, Row
from tests.unit.control.objects import resource, view
from tests.unit.render.rendered import SITE

STRICT = replace(SITE, policy=SitePolicy.model_validate(POLICY))


@pytest.mark.parametrize("row", [row for row in ROWS if row.attempts], ids=lambda row: f"{row.number}-{row.tried}")
def test_what_is_stored_past_admission_is_not_accepted_and_makes_nothing(row: Row) -> None:
    for attempt in row.attempts:
        stored = resource() | {"spec": copy.deepcopy(attempt.spec)}
        stored["metadata"]["name"] = attempt.name or "digits"
        planned = make(view(resource=stored, site=STRICT, gateway_api=True))

        assert planned.acceptance.reason in {Reason.INVALID, Reason.POLICY_DENIED}
        assert attempt.off in planned.acceptance.message[:MESSAGE_LIMIT]
        assert (planned.first, planned.then, planned.delete) == ((), (), ())
