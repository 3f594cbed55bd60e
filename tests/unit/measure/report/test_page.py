"""The page of results: its sections, its text, its size, and the results in it."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from halcyon_measure.report.page import page
from halcyon_measure.results.document_file import embedded
from halcyon_measure.results.figure import Figure
from halcyon_measure.results.sections.hardware import Hardware, Series
from halcyon_measure.results.sections.roofline import Roofline
from tests.bench_documents import answers, bench_document, grid, stored

WEIGHT_BYTES = 50_000
"""Pages with thousands of results are made."""

LIBRARY = "class uPlot {}\nconst HEIGHT = 1;\nexport { uPlot as default };\n"
HOSTILE = "</script><img src=x onerror=alert(1)> \u202e & \"'\u2028"


def text_of(*documents, library: str = LIBRARY) -> str:  # noqa: ANN002  # results of `stored`
    return page(documents, library=library, library_style=".uplot {}")


def test_sections_follow_each_other_from_the_answer_to_the_data() -> None:
    html = text_of(*stored(bench_document(sections=True, failures=3)))
    sections = re.findall(r"<h2 id=\"([a-z-]+)\">", html)
    assert sections == ["figures", "latency", "failures", "phases", "energy", "run", "data-section"]
    assert html.index('class="answer"') < html.index("The run is valid") < html.index("<h2")


def test_results_in_a_page_are_those_that_were_given() -> None:
    results = stored(bench_document(model=HOSTILE, failures=2, message=HOSTILE), bench_document(seed=2))
    data = embedded(text_of(*results))
    assert data == [(result.name, result.data) for result in results]


def test_text_of_a_server_is_never_markup() -> None:
    html = text_of(*stored(bench_document(model=HOSTILE, failures=2, message=HOSTILE)))
    assert "<img" not in html
    assert html.count("</script>") == 2
    assert "\u202e" not in html.replace(html[html.index('<script id="data"') :], "")


def test_a_page_names_no_address_to_load_from() -> None:
    html = text_of(*stored(bench_document(sections=True)))
    assert re.findall(r"(?:src|href)=\"(?!#|data:,)[^\"]*\"|url\(|@import", html) == []
    assert "default-src &#x27;none&#x27;" in html


def test_a_chart_is_beside_the_table_of_its_values() -> None:
    html = text_of(*stored(bench_document()))
    for figure in re.findall(r"<figure class=\"plot\".*?</figure>", html, re.DOTALL):
        assert figure.count("data-line=") >= 1
        assert len(re.findall(r"<th scope=\"row\" data-v=", figure)) >= 2
    assert html.count('<figure class="plot"') == 3


def test_a_result_from_the_history_is_compared_without_its_timeline() -> None:
    summary = bench_document(model="earlier").model_copy(update={"timeline": ()})
    html = text_of(*stored(summary, bench_document(failures=2)))
    assert "P99 over time" in html
    assert "earlier" in html


def test_a_run_of_one_caller_is_in_the_singular() -> None:
    capacity = answers()["capacity"]
    single = capacity.runs[0].model_copy(update={"rate_rps": None, "callers": 1})
    capacity = capacity.model_copy(update={"runs": (single, *capacity.runs)})
    assert ">1 caller<" in text_of(*stored(bench_document().model_copy(update={"capacity": capacity})))


def test_a_result_that_isnt_valid_has_its_reasons() -> None:
    document = bench_document()
    reasons = ("the client limits (cores): it waited for a core 40% of the time",)
    wrong = document.model_copy(
        update={"run": document.run.model_copy(update={"valid": False, "invalid_because": reasons})}
    )
    html = text_of(*stored(wrong))
    assert f"{reasons[0]}" in html
    assert "The run isn&#x27;t valid." in html


def test_a_figure_without_a_value_has_its_reason() -> None:
    html = text_of(*stored(bench_document(sections=True)))
    assert "not measured: no GPU" in html


def test_runs_are_named_by_what_differs() -> None:
    html = text_of(*stored(bench_document(rows=1), bench_document(rows=8, seed=2, encoding="raw")))
    assert ">http binary, 1 row<" in html
    assert ">grpc raw, 8 rows<" in html


def test_alike_runs_have_different_names() -> None:
    html = text_of(*stored(bench_document(), bench_document()))
    assert ">digits (1)<" in html
    assert ">digits (2)<" in html


def test_a_sweep_has_its_pictures() -> None:
    html = text_of(*grid(40))
    titles = re.findall(r"data-title=\"([^\"]+)\"", html)
    assert titles[-4:] == [
        "P99 by rate",
        "Throughput by rate",
        "Throughput by rows of a request",
        "CPU of the client by protocol",
    ]


def test_a_long_run_is_shown_in_spans_of_seconds() -> None:
    html = text_of(*stored(bench_document(rate_rps=20, duration_s=600)))
    assert "Each point is the largest of 3 seconds." in html


def test_the_last_partial_second_of_a_chart_is_a_rate() -> None:
    (run,) = stored(bench_document(rate_rps=200, duration_s=10.6))
    html = text_of(run)
    chart = html[html.index('data-title="Requests over time"') :]
    rows = re.findall(r"</th><td>\d+</td><td>(\d+)</td>", chart[: chart.index("</table>")])
    assert len(rows) == 11
    assert int(rows[-1]) == round(run.document.timeline[-1].due / 0.6)


def test_a_large_sweep_keeps_its_results_compressed() -> None:
    results = grid(30)
    html = text_of(*results)
    assert 'data-encoding="deflate"' in html
    assert embedded(html) == [(result.name, result.data) for result in results]
    assert len(html) < 30 * 8000


def test_a_page_without_the_library_has_its_tables() -> None:
    html = text_of(*stored(bench_document()), library="")
    assert "const uPlot = null;" in html
    assert html.count('<figure class="plot"') == 3


def test_a_library_of_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match="doesn't end"):
        text_of(*stored(bench_document()), library="window.uPlot = 1;")


def test_the_policy_allows_the_script_of_the_page_alone() -> None:
    html = text_of(*stored(bench_document()))
    script = html[html.index('<script type="module">') + len('<script type="module">') : html.rindex("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src &#x27;sha256-{digest}&#x27;;" in html


def test_answers_come_first_and_have_their_sections() -> None:
    html = text_of(*stored(bench_document(sections=True).model_copy(update=answers())))
    sections = re.findall(r"<h2 id=\"([a-z-]+)\">", html)
    order = ["figures", "latency", "failures", "capacity", "sweep", "phases", "energy", "comparison", "leaderboard"]
    assert sections == [*order, "run", "data-section"]
    sentences = re.findall(r'<p class="answer">(.*?)</p>', html)
    assert [sentence[:11] for sentence in sentences] == ["One replica", "P99 of int8"]
    assert "<td>-12<small> [-18, -5]</small></td>" in html
    assert html.count('class="whisker shown"') == 1
    assert 'data-title="Latency by rate"' in html
    assert 'data-title="P99 by rate"' in html
    assert ">1. int8<" in html
    assert ">accuracy<" not in html


def test_a_model_on_paper_has_its_roofline() -> None:
    rate = {"value": 2e9, "unit": "FLOP/s", "n": 5, "source": "GEMM"}
    memory = {"value": 1e9, "unit": "bytes/s", "n": 5, "source": "triad"}
    roofline = Roofline.model_validate({
        "datatype": "FP32",
        "compute": {"kind": "measured", "rate": rate, "cv": 0.01, "how": "GEMM on 2 cores"},
        "memory": {"kind": "published", "rate": memory, "cv": None, "how": "a <product>"},
        "ridge": 2.0,
        "points": [{
            "batch": 1, "intensity": 0.5, "rate": rate | {"value": 1e8}, "roof": 5e8,
            "share": {"value": 0.2, "unit": "ratio", "n": 1, "source": "model"}, "bound": "bandwidth", "source": "served",
        }],
        "bandwidth_bound_below": 4,
        "above": [],
        "answer": "20 % of the roof, bandwidth-bound below batch 4",
    })  # fmt: skip
    html = text_of(*stored(bench_document().model_copy(update={"roofline": roofline})))
    assert "20 % of the roof" in html
    assert "a &lt;product&gt;" in html
    assert 'data-title="Roofline"' in html


def test_samples_of_hardware_are_charts_over_time() -> None:
    absent = {"value": None, "unit": "ratio", "n": 0, "source": "", "reason": "no GPU"}
    share = {"value": 0.5, "unit": "ratio", "n": 3, "source": "metrics"}
    cores = share | {"unit": "cores"}
    series = {name: {"mean": absent, "p10": absent, "p90": absent, "max": absent} for name, kind in Hardware.model_fields.items() if kind.annotation is Series}  # fmt: skip
    series["machine_cpu"] = {"mean": share, "p10": share, "p90": share, "max": share, "values": [0.4, 0.5, 0.6]}
    series["server_cpu"] = {"mean": cores, "p10": cores, "p90": cores, "max": cores, "values": [1.0, 2.0]}
    figures = {name: absent for name, kind in Hardware.model_fields.items() if kind.annotation is Figure}
    hardware = Hardware.model_validate(series | figures | {"samples": 3, "replicas": [], "notes": []})
    html = text_of(*stored(bench_document().model_copy(update={"hardware": hardware})))
    assert 'data-title="Utilisation over time"' in html
    assert 'data-title="CPU of the servers over time"' in html
    assert "GPU memory" in html
    assert "not measured: no GPU" in html


def lines_of(html: str, title: str) -> dict[str, list[str]]:
    """Return the lines of a chart by name, from the table beside it."""
    figure = next(
        plot for plot in re.findall(r"<figure class=\"plot\".*?</figure>", html, re.DOTALL) if f">{title}<" in plot
    )
    names = re.findall(r"data-line=\"([^\"]+)\"", figure)
    rows = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in re.findall(r"<tr><th scope=\"row\".*?</tr>", figure)]
    return {name: [row[n] for row in rows] for n, name in enumerate(names)}


def test_models_have_a_line_each_in_charts_over_the_load() -> None:
    runs = [
        bench_document(model=model, rate_rps=rate, duration_s=5) for model in ("fp32", "int8") for rate in (20.0, 40.0)
    ]
    html = text_of(*stored(*runs))
    lines = lines_of(html, "P99 by rate")
    assert list(lines) == ["fp32", "int8"]
    assert all("-" not in values for values in lines.values())
    assert list(lines_of(html, "Throughput by rate")) == ["fp32", "int8"]


def test_replicas_of_a_sweep_have_a_line_each() -> None:
    sweep = answers()["sweep"]
    few = [point for point in sweep.points if point.rows == "1"]
    more = [point.model_copy(update={"replicas": 4, "p99": figure_of(2.0)}) for point in few]
    document = bench_document().model_copy(update={"sweep": sweep.model_copy(update={"points": (*few, *more)})})
    lines = lines_of(text_of(*stored(document)), "P99 by rate")
    assert lines["4 replicas"] == ["2", "2", "2"]
    assert "2" not in lines["1 replica"]


def figure_of(value: float) -> Figure:
    return Figure(value=value, unit="ms", n=1000, source="due to done")


def test_a_sweep_is_not_presented_as_its_last_point() -> None:
    document = bench_document().model_copy(update={"sweep": answers()["sweep"]})
    html = text_of(*stored(document)).replace("\u00a0", " ")
    sentences = re.findall(r'<p class="answer">(.*?)</p>', html)
    assert sentences == ["digits: 6 points; the most is 480 rows/s, with 8 rows, grpc raw, 60/s."]
    assert "figures are those of its last point: 8 rows, grpc raw, 60/s." in html
    two = text_of(*stored(document, bench_document(model="other", rate_rps=10.0))).replace("\u00a0", " ")
    assert "answered is 60 requests/s (digits, 100/s: 1 row, grpc raw, 60/s)" in two


def test_figures_of_a_sweep_beside_other_runs_are_its_last_point_s() -> None:
    sweep = bench_document().model_copy(update={"sweep": answers()["sweep"]})
    sentence = "Outside of the section Sweep, the figures of a sweep are those of its last point."
    assert sentence in text_of(*stored(sweep, bench_document(seed=2)))
    assert sentence not in text_of(*stored(bench_document(), bench_document(seed=2)))


def test_the_best_of_several_runs_is_a_valid_one() -> None:
    fast = bench_document(rate_rps=150.0, duration_s=5)
    wrong = fast.run.model_copy(update={"valid": False, "invalid_because": ("the client limits",)})
    html = text_of(*stored(fast.model_copy(update={"run": wrong}), bench_document(rate_rps=20.0, duration_s=5)))
    assert "The most that the valid runs answered" in html
    assert "(20/s); the shortest P99" in html


def test_a_run_that_failed_throughout_has_its_share_in_digits() -> None:
    html = text_of(*stored(bench_document(failures=10**6, duration_s=5)))
    assert '<dd class="quiet">100 %</dd>' in html
    assert "e+02" not in html


def test_a_fixed_warm_up_is_not_a_load_that_settled() -> None:
    document = bench_document(duration_s=5)
    fixed = document.model_copy(update={"run": document.run.model_copy(update={"settled": None})})
    assert "The warm-up had a fixed length, and the client" in text_of(*stored(fixed))
    assert "The load settled, and the client" in text_of(*stored(document))
    assert "The load settled, or the warm-up had a fixed length, and" in text_of(*stored(document, fixed))


def test_a_comparison_with_an_earlier_result_has_no_rounds() -> None:
    comparison = answers()["comparison"].model_copy(update={"order": "", "rounds": 1, "leaderboard": ()})
    undecided = comparison.bounds[0].model_copy(update={"text": "capacity < -5%"})
    comparison = comparison.model_copy(update={"bounds": (*comparison.bounds, undecided)})
    html = text_of(*stored(bench_document().model_copy(update={"comparison": comparison})))
    assert "One run of each, at different times; intervals are from within the runs" in html
    assert "over rounds" not in html.replace(html[html.index('<script id="data"') :], "")
    assert "p99 &gt; +5%: <strong>kept</strong>" in html
    assert "capacity &lt; -5%: <strong>not decided</strong>" in html


def test_leaderboards_of_two_results_are_not_ranked_together() -> None:
    boards = [bench_document(seed=n).model_copy(update={"comparison": answers()["comparison"]}) for n in (1, 2)]
    html = text_of(*stored(*boards))
    assert html.count(">1. int8<") == 2
    assert ">3. int8<" not in html


def test_runs_that_are_alike_have_their_files() -> None:
    html = text_of(*stored(bench_document(), bench_document()))
    assert '<td class="t">bench-0.json</td>' in html
    assert '<td class="t">bench-1.json</td>' in html
