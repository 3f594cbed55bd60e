"""The page's question about other targets, and its answer."""

from __future__ import annotations

import json

import pytest

from halcyon.dashboard import whatif
from halcyon.dashboard.model_table import InvalidQuery
from halcyon.dashboard.ports import Past
from halcyon.dashboard.whatif import WhatIfQuery
from halcyon.scaling.planner.capacity.queueing import Replica, ServiceLine
from halcyon.scaling.planner.reading import Objectives
from halcyon.scaling.planner.whatif import Known

KNOWN = Known(
    Objectives(low=1, high=8, max_batch=8, latency_s=0.4),
    Replica(ServiceLine(0.02, 0.01), 8),
    dispersion=1.0,
    margin=0.0,
)
PAST = Past(300.0, 1_000_000.0, (None, *[100.0] * 24))


def test_both_courses_are_shown_with_their_totals() -> None:
    comparison = whatif.comparison(
        WhatIfQuery.of({"latency": "250ms", "max": "2", "min": "", "hours": "1"}), KNOWN, PAST
    )

    assert json.loads(json.dumps(comparison)) == comparison
    assert (comparison["end"], comparison["step"], len(comparison["rate"]), comparison["known_hours"]) == (
        1_000_000.0,
        300.0,
        12,
        1.0,
    )
    assert len(comparison["current"]) == len(comparison["alternative"]) == 12
    current, alternative = comparison["totals"]["current"], comparison["totals"]["alternative"]
    assert (current["min"], current["max"], current["latency_ms"]) == (1, 8, 400.0)
    assert (alternative["min"], alternative["max"], alternative["latency_ms"]) == (1, 2, 250.0)
    assert current["short_hours"] == 0
    assert current["replica_hours"] == current["peak"]


def test_an_empty_request_repeats_the_present() -> None:
    comparison = whatif.comparison(WhatIfQuery.of({"latency": "", "min": "", "max": ""}), KNOWN, PAST)

    assert comparison["alternative"] == comparison["current"]
    assert len(comparison["rate"]) == 25
    assert comparison["current"][0] is None


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"latency": "soon"}, "latency is 'soon'; it must be a duration, for example 200ms"),
        ({"latency": "0ms"}, "latency is '0ms'; it must be a duration, for example 200ms"),
        ({"min": "-1"}, "min is '-1'; it must be a number from 0 to 1000"),
        ({"max": "0"}, "max is '0'; it must be a number from 1 to 1000"),
        ({"hours": "361"}, "hours is '361'; it must be a number from 1 to 360"),
    ],
)
def test_an_invalid_wish_is_refused_with_a_good_example(query: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidQuery, match=words):
        WhatIfQuery.of(query)


def test_limits_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidQuery, match="min is 9 and max is 8"):
        whatif.comparison(WhatIfQuery.of({"min": "9"}), KNOWN, PAST)


def test_the_reason_is_given_if_no_answer_is_possible() -> None:
    assert "No past arrivals are known" in whatif.comparison(WhatIfQuery(), None, None)["why"]
    assert "is not known yet" in whatif.comparison(WhatIfQuery(), None, PAST)["why"]
