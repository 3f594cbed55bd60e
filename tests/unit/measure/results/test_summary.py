"""The document of a run: counts, rates, latencies from due times, failures over time, and what makes it invalid."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from halcyon_measure.inputs.tensors import ModelInput
from halcyon_measure.protocols.reply import Outcome
from halcyon_measure.protocols.target import Target, parse
from halcyon_measure.results import document_file, summary, text
from halcyon_measure.results.columns import Columns
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.run import Run
from halcyon_measure.schedule.scenario import Scenario

TARGET: Target = replace(
    parse("grpc://model:8001", api="kserve", transport=None, encoding=None, model="digits"),
    inputs=(ModelInput("pixels", "FP32", (-1, 64)),),
)
USAGE = {"wall_s": 10.0, "cpu_s": 0.5, "core_wait_s": 0.01, "gc_s": 0.0, "gc_longest_s": 0.001}


def row(
    due: float, latency: float, outcome: Outcome = Outcome.ANSWERED, kind: int = -1, *, late: float = 0.0, pod: int = -1
) -> tuple[float, ...]:
    sent = math.nan if outcome is Outcome.NOT_SENT else due + late
    done = due + latency
    return (due, due, sent, math.nan, done, done, done, 0.0, 0.0, outcome, kind, 2, 100, 50, pod)


def document(
    rows: list[tuple[float, ...]],
    *,
    messages: tuple[str, ...] = (),
    pods: tuple[str, ...] = (),
    objective_s: float | None = None,
    **facts: Any,
) -> BenchDocument:
    run = Run(
        **{
            "columns": Columns.of(rows),
            "messages": messages,
            "pods": pods,
            "warm_up_s": 3.0,
            "settled": True,
            "measured_s": 10.0,
            "partial": False,
            "usage": (USAGE,),
            **facts,
        }
    )
    scenario = Scenario(kind="sustained", rate_rps=100, duration_s=10)
    return summary.build(
        run,
        TARGET,
        scenario,
        preset="",
        rows="2",
        objective_s=objective_s,
        prepares=False,
        program="t",
        timestamp="now",
    )


EVEN = [row(n / 100, 0.05) for n in range(1000)]


@pytest.mark.parametrize(
    ("rows", "figure", "reason"),
    [
        ([row(n / 10, 0.0, Outcome.NOT_SENT, 0) for n in range(50)], "late_p99", "no request was sent"),
        ([], "cpu_per_request", "no request was due"),
    ],
)
def test_figures_of_a_client_that_sent_nothing_have_reasons(
    rows: list[tuple[float, ...]], figure: str, reason: str
) -> None:
    result = document(rows, messages=("not sent: prepare had not ended",))
    assert getattr(result.client, figure).reason == reason
    assert document_file.parse(json.loads(result.model_dump_json()), "bench.json") == result


def test_rates_and_counts_are_those_of_the_requests() -> None:
    result = document(EVEN, objective_s=0.1)
    assert (result.offered.value, result.throughput.value, result.goodput.value, result.rows.value) == (
        100,
        100,
        100,
        200,
    )
    assert (result.requests.due, result.requests.answered, result.requests.good, result.requests.rows) == (
        1000,
        1000,
        1000,
        2000,
    )
    assert result.run.valid


def test_latency_runs_from_the_due_time_and_not_from_sending() -> None:
    result = document([row(n / 100, 0.05, late=0.04) for n in range(1000)])
    assert result.latency.p99.value == pytest.approx(50)
    assert result.from_send.p99.value == pytest.approx(10)
    assert result.client.late_p99.value == pytest.approx(40)


def test_failures_are_counted_by_message_with_their_times() -> None:
    rows = [*EVEN, row(2.0, 0.001, Outcome.REJECTED, 0), row(4.5, 0.001, Outcome.REJECTED, 0), row(9.0, 5.0, Outcome.TIMED_OUT, 1)]  # fmt: skip
    result = document(rows, messages=("429: full", "no answer within 5 s"))
    assert [(kind.outcome, kind.message, kind.count, kind.first_s, kind.last_s) for kind in result.failures] == [
        ("rejected", "429: full", 2, 2.0, 4.5),
        ("timed_out", "no answer within 5 s", 1, 9.0, 9.0),
    ]
    assert (result.requests.rejected, result.requests.timed_out, result.requests.answered) == (2, 1, 1000)


def test_every_request_is_in_one_count() -> None:
    rows = [row(n / 10, 0.01, outcome, -1 if outcome is Outcome.ANSWERED else 0) for n, outcome in enumerate(Outcome)]
    requests = document(rows, messages=("x",)).requests.model_dump()
    assert sum(requests[name] for name in requests if name not in {"due", "good", "rows"}) == len(Outcome)


def test_the_timeline_has_every_second() -> None:
    result = document([row(0.5, 0.01), row(7.2, 0.02), row(7.3, 0.04, Outcome.ERROR, 0)], messages=("500: no",))
    assert [(second.due, second.answered, second.failed) for second in result.timeline] == [
        (1, 1, 0), (0, 0, 0), (0, 0, 0), (0, 0, 0), (0, 0, 0), (0, 0, 0), (0, 0, 0), (2, 1, 1), (0, 0, 0), (0, 0, 0),
    ]  # fmt: skip
    assert [second.p50_ms for second in result.timeline][:2] == [10, None]


def test_an_unmeasured_figure_has_a_reason_and_no_value() -> None:
    result = document(EVEN)
    assert (result.goodput.value, result.goodput.reason) == (
        None,
        "no objective is given; for example --objective 500ms",
    )
    assert (result.prepare.p50.value, result.prepare.p50.reason) == (None, "requests were prepared before the run")
    assert result.latency.p99_9.reason == "fewer than ten requests lie above it"
    nothing = document([row(1.0, 0.1, Outcome.ERROR, 0)], messages=("500",))
    assert (nothing.latency.p50.value, nothing.latency.p50.reason) == (None, "no request was answered")


@pytest.mark.parametrize(
    ("rows", "facts", "reason"),
    [
        (EVEN, {"settled": False}, "rate and median latency had not settled after 3 s of warm-up"),
        (EVEN, {"partial": True}, "the run was interrupted"),
        (
            [row(n / 100, 0.05, late=0.01) for n in range(1000)],
            {"usage": (USAGE | {"cpu_s": 9.5},)},
            "the client limits (client CPU)",
        ),
        ([row(1.0, 0.1, Outcome.NOT_SENT, 0), *EVEN], {"messages": ("not sent",)}, "1 requests were not sent"),
        ([row(1.0, 0.1, Outcome.ERROR, 0)], {"messages": ("500",)}, "no request was answered"),
    ],
)
def test_a_run_that_answers_nothing_is_not_valid(
    rows: list[tuple[float, ...]], facts: dict[str, Any], reason: str
) -> None:
    result = document(rows, **facts)
    assert not result.run.valid
    assert reason in " ".join(result.run.invalid_because)


def test_server_that_falls_behind_has_its_own_rate_and_is_not_valid() -> None:
    # 100 requests/s are due for 10 s, and one after the other takes 20 ms.
    queued = [row(n / 100, (n + 1) / 50 - n / 100) for n in range(1000)]
    result = document(queued, objective_s=30.0)
    assert result.offered.value == 100
    for figure in (result.throughput, result.goodput):
        assert figure.value == pytest.approx(50, rel=0.01)
        assert figure.interval is not None
        assert figure.interval[0] <= 50.1
        assert figure.interval[1] >= 49.9
    assert result.rows.value == pytest.approx(100, rel=0.01)
    (reason,) = result.run.invalid_because
    assert reason.startswith("the server fell behind: 100 requests/s were due, and it answered 50, so ")


def test_answers_of_half_the_requests_keep_the_length_of_the_run() -> None:
    # A queue of 250 requests is full after 5 s, and the server rejects the others.
    queued = [row(n / 100, n / 100) for n in range(250)]
    rejected = [row(n / 100, 0.001, Outcome.REJECTED, 0) for n in range(250, 1000)]
    result = document([*queued, *rejected], messages=("429: full",))
    assert (result.throughput.value, result.run.valid) == (25, True)


def test_answers_are_shared_by_pod_if_they_name_it() -> None:
    result = document([row(n / 10, 0.01, pod=n % 4 // 3) for n in range(100)], pods=("a", "b"))
    assert [(share.pod, share.answered) for share in result.pods] == [("a", 75), ("b", 25)]


def test_the_document_is_read_back_from_its_json() -> None:
    result = document(EVEN, objective_s=0.1)
    assert BenchDocument.model_validate_json(result.model_dump_json()) == result


def test_the_text_begins_with_the_result_and_fits_eighty_columns() -> None:
    rows = [*EVEN, row(2.0, 0.001, Outcome.REJECTED, 0)]
    page = text.page(document(rows, messages=("429: " + "full " * 40,), objective_s=0.1, partial=True))
    sentence = page.partition("\n\n")[0].replace("\n", " ")
    assert (
        sentence
        == "digits answered 100 requests/s: p50 50.0 ms, p99 50.0 ms, 99.9 % within the objective; 1 of 1001 failed."
    )
    assert max(map(len, page.splitlines())) <= 80
    assert "NOT VALID the run was interrupted" in page


def test_the_interval_of_equal_latencies_holds_their_percentile() -> None:
    for latency in (0.01, 0.0333, 0.1001):
        p50 = document([row(number / 100, latency) for number in range(1000)]).latency.p50
        assert p50.interval is not None
        assert p50.value is not None
        assert p50.value == pytest.approx(1000 * latency)
        assert p50.interval[0] <= p50.value <= p50.interval[1]


def test_an_offline_run_has_the_interval_of_its_answers_by_second() -> None:
    run = Run(
        columns=Columns.of([row(0.0, (n + 1) / 100) for n in range(1000)]),
        messages=(),
        pods=(),
        warm_up_s=3.0,
        settled=True,
        measured_s=10.0,
        partial=False,
        usage=(USAGE,),
    )
    scenario = Scenario(kind="offline", requests=1000, callers=256, duration_s=600)
    result = summary.build(
        run, TARGET, scenario, preset="", rows="2", objective_s=5.0, prepares=False, program="t", timestamp="now"
    )
    low, high = result.throughput.interval or (0.0, 0.0)
    assert 98 < low <= result.throughput.value == 100 <= high < 102
    assert result.goodput.interval is not None
    assert result.goodput.interval[0] > 10
    assert [result.latency.p50.interval, result.latency.p99.interval] == [None, None]


def test_the_last_arrival_is_in_the_timeline() -> None:
    result = document([row(n / 2, 0.05) for n in range(21)])
    assert [second.due for second in result.timeline] == [2] * 9 + [3]


def test_a_rate_of_a_slow_model_is_not_shown_as_zero() -> None:
    result = document([row(0.0, 5.0)], measured_s=300.0)
    assert text.answer(result).startswith("digits answered 0.0033 requests/s: ")
