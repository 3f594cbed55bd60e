"""The load of a measurement that is compared with an earlier result."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon_cli.bench import several_results
from halcyon_cli.bench.options.answer import AnswerOptions
from halcyon_cli.bench.options.inputs import InputOptions
from halcyon_cli.bench.options.load import LoadOptions
from halcyon_cli.bench.options.place import PlaceOptions
from halcyon_cli.bench.options.server import ServerOptions
from halcyon_cli.bench.place.bench_request import BenchRequest
from halcyon_cli.errors import InputError
from halcyon_measure.compare import section
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.place import Place
from tests.bench_documents import answers, bench_document

AFFECTED = "at 80 requests/s, p95 was 120.0 ms; the bound is 100.0 ms"


def live(rate_rps: float, ended: str | None = AFFECTED) -> BenchDocument:
    place = Place(kind="live", ended=ended)
    return bench_document(rate_rps=rate_rps).model_copy(update={"place": place})


def request(**load: Any) -> BenchRequest:
    return BenchRequest(
        name="digits",
        server=ServerOptions(),
        load=LoadOptions(**load),
        answer=AnswerOptions(against="last"),
        inputs=InputOptions(),
        place=PlaceOptions(live=True),
    )


def test_live_steps_rise_above_the_rate_where_the_earlier_ones_ended() -> None:
    assert several_results.repeating(request(), live(40.0)).load.rate is None


def test_highest_rate_of_earlier_live_steps_is_repeated() -> None:
    assert several_results.repeating(request(), live(40.0, ended=None)).load.rate == 40.0


def test_live_steps_are_compared_by_the_rate_that_they_reached() -> None:
    comparison = section.build(("old", [live(40.0)]), ("new", [live(80.0)]), in_turns=False)
    assert {entry.figure for entry in comparison.differences} == {"throughput", "cpu"}
    assert "throughput" in comparison.sentence


def test_live_steps_are_not_compared_with_a_search() -> None:
    searched = bench_document().model_copy(update={"capacity": answers()["capacity"]})
    with pytest.raises(InputError, match="--live raises the rate in steps"):
        several_results.repeating(request(), searched)
