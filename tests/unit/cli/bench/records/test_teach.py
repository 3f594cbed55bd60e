"""What a measurement teaches: the line of its batches, or requests at once, and the ConfigMap that keeps it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from halcyon.api.documents.measured_capacity import MeasuredLine, Served, line_for, read
from halcyon.control.state.measured_capacities import measured as applied
from halcyon.main import main
from halcyon_cli.bench.options.inputs import InputOptions
from halcyon_cli.bench.options.load import LoadOptions
from halcyon_cli.bench.options.place import PlaceOptions
from halcyon_cli.bench.options.server import ServerOptions
from halcyon_cli.bench.place.bench_request import BenchRequest
from halcyon_cli.bench.records import teach
from halcyon_cli.errors import InputError
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.figure import Figure, Unit, unmeasured
from halcyon_measure.results.place import Place
from halcyon_measure.results.sections.batches import Batches, BatchSize
from halcyon_measure.results.sections.capacity import Capacity
from tests.unit.measure.results.test_summary import EVEN, document

MODEL: dict[str, Any] = {
    "metadata": {"name": "digits", "namespace": "team", "uid": "u-1"},
    "spec": {"scaling": {"minReplicas": 1, "maxReplicas": 8}},
}
IMAGE = "localhost/tritonserver:24.10"
PLACE = Place(kind="copy", revision="digits-5d7c", image=IMAGE, replicas=1)
NONE = unmeasured("ms", "not measured")


def figure(value: float, unit: Unit = "ms") -> Figure:
    return Figure(value=value, unit=unit, n=100, source="a test")


def batches(times: dict[int, float], *, instances: int = 1, executions: int = 50) -> Batches:
    """Executions of each size with these milliseconds, a tenth of it for inputs and outputs."""
    sizes = tuple(
        BatchSize(
            rows=rows, executions=executions, input=figure(0.05 * ms), model=figure(0.9 * ms), output=figure(0.05 * ms)
        )
        for rows, ms in times.items()
    )
    return Batches(
        sizes=sizes, executions=NONE, mean_rows=NONE, largest=NONE, fill=NONE, constant=NONE, per_row=NONE,
        line_error=NONE, busy=NONE, instances=figure(instances, "executions"),
    )  # fmt: skip


def measured(
    of: Batches | None, *, saturation: float, single_ms: float, place: Place = PLACE, rows: int = 1, **changes: Any
) -> BenchDocument:
    capacity = Capacity(
        sentence="", objective_ms=500, percentile=0.99, rate=NONE, saturation=figure(saturation, "requests/s"), knee=NONE,
        single=figure(single_ms), confirmed=True, law="", runs=(), seconds=1, seed=1,
    )  # fmt: skip
    base = document(EVEN)
    requests = base.requests.model_copy(update={"rows": rows * base.requests.answered})
    run = base.run.model_copy(update={"valid": True, "invalid_because": ()})
    known = {
        "made_at": "2026-11-28T10:00:00Z", "place": place, "capacity": capacity, "batches": of, "requests": requests, "run": run
    }  # fmt: skip
    return base.model_copy(update=known | changes)


def test_the_line_is_that_of_whole_executions() -> None:
    line = teach.line(measured(batches({1: 86, 4: 104, 8: 128}), saturation=60, single_ms=88))
    assert (line.instances, line.max_batch_size, line.at_once) == (1, 8, None)
    assert line.constant_milliseconds == pytest.approx(80)
    assert line.per_row_milliseconds == pytest.approx(6)


def test_instances_are_those_of_one_replica() -> None:
    place = PLACE.model_copy(update={"replicas": 2})
    line = teach.line(measured(batches({1: 86, 8: 128}, instances=4), saturation=240, single_ms=88, place=place))
    assert line.instances == 2


def test_rare_sizes_do_not_bend_the_line() -> None:
    of = batches({1: 86, 8: 128})
    odd = batches({6: 900}, executions=1).sizes
    line = teach.line(measured(of.model_copy(update={"sizes": of.sizes + odd}), saturation=60, single_ms=88))
    assert line.seconds(6) == pytest.approx(0.116)


def test_one_size_has_no_time_per_row() -> None:
    line = teach.line(measured(batches({1: 50}), saturation=20, single_ms=51))
    assert (line.constant_milliseconds, line.per_row_milliseconds) == (pytest.approx(50), 0)


@pytest.mark.parametrize("of", [batches({1: 0.3}), None])
def test_requests_at_once_are_taught_if_batch_times_hide_them(of: Batches | None) -> None:
    line = teach.line(measured(of, saturation=2.0, single_ms=16000))
    assert line.at_once == 32
    assert line.answers() == (32.0, pytest.approx(16.0))


def test_several_rows_of_a_request_are_no_contradiction() -> None:
    line = teach.line(measured(batches({4: 104, 8: 128}), saturation=15, single_ms=105, rows=4))
    assert line.at_once is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"capacity": None}, "--teach needs a search"),
        ({"place": None}, "the revision and the image"),
        ({"place": PLACE.model_copy(update={"gpu_product": "A,B"})}, "several GPU products, A,B"),
    ],
)
def test_a_measurement_that_says_too_little_is_not_taught(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        teach.measured(measured(batches({1: 86, 8: 128}), saturation=60, single_ms=88, **changes))


def invalid(measurement: BenchDocument) -> BenchDocument:
    run = measurement.run.model_copy(update={"valid": False, "invalid_because": ("the client was the limit",)})
    return measurement.model_copy(update={"run": run})


def test_requests_at_once_of_an_invalid_run_are_not_taught() -> None:
    with pytest.raises(InputError, match="the client was the limit"):
        teach.line(invalid(measured(None, saturation=2.0, single_ms=16000)))


def test_batch_times_of_an_invalid_run_are_the_servers_own() -> None:
    line = teach.line(invalid(measured(batches({1: 86, 8: 128}), saturation=60, single_ms=88)))
    assert line.per_row_milliseconds == pytest.approx(6)


@pytest.mark.parametrize(("saturation", "largest"), [(300.0, 32), (180.0, 8)])
def test_the_largest_batch_is_the_configured_one_if_reached(saturation: float, largest: int) -> None:
    """20 + 2 b ms: 381 requests/s in batches of 32, and 222 in batches of 8."""
    of = batches({1: 22, 8: 36}).model_copy(update={"largest": figure(32, "rows")})
    assert teach.line(measured(of, saturation=saturation, single_ms=23)).max_batch_size == largest


def test_the_config_map_is_what_the_operator_reads() -> None:
    taught = teach.measured(measured(batches({1: 86, 8: 128}), saturation=60, single_ms=88))
    config_map = teach.config_map(MODEL, None, taught)
    assert config_map["metadata"]["name"] == "digits-capacity"
    assert config_map["metadata"]["labels"]["serving.halcyon.dev/model-deployment"] == "digits"
    assert line_for(read(config_map), Served("digits-5d7c", PLACE.image or "", "", 1)).max_batch_size == 8
    assert applied(config_map, Served("digits-77aa", PLACE.image or "")).line is None


def test_a_write_is_on_condition_of_the_version_read() -> None:
    taught = teach.measured(measured(batches({1: 86, 8: 128}), saturation=60, single_ms=88))
    stored = {"metadata": {"resourceVersion": "7"}}
    assert teach.config_map(MODEL, stored, taught)["metadata"]["resourceVersion"] == "7"


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        (MODEL["spec"], "the planner begins with it"),
        ({}, "digits has no spec.scaling"),
        ({"scaling": {"policy": "Rules"}}, "is Rules, which doesn't use it"),
    ],
)
def test_the_sentence_names_who_uses_it(spec: dict[str, Any], part: str) -> None:
    taught = teach.measured(measured(batches({1: 86, 8: 128}), saturation=60, single_ms=88))
    text = teach.sentence({**MODEL, "spec": spec}, taught)
    assert part in text
    assert "80 ms + 6 ms per row, up to 8 rows, 1 instance" in text


def test_lines_of_several_instances_fit_into_the_document() -> None:
    lines = tuple(
        MeasuredLine(instances=n, constant_milliseconds=80.123456, per_row_milliseconds=6.123456, max_batch_size=64)
        for n in range(1, 9)
    )
    taught = teach.of_server(
        lines, revision="digits-5d7c", image=IMAGE, gpu_product=None, measured_at="2026-11-28T10:00:00Z", source="tune"
    )
    assert len(teach.config_map(MODEL, None, taught)["data"]["capacity.json"]) < 2048


def test_the_served_model_itself_teaches_nothing() -> None:
    with pytest.raises(InputError, match="leave out --live"):
        PlaceOptions(live=True, teach=True).check()


@pytest.mark.parametrize("load", [LoadOptions(rate=20.0), LoadOptions(callers=4)])
def test_a_given_load_teaches_nothing(load: LoadOptions) -> None:
    request = BenchRequest(
        name="digits", server=ServerOptions(), load=load, inputs=InputOptions(), place=PlaceOptions(teach=True)
    )
    with pytest.raises(InputError, match="halcyon bench digits --teach"):
        request.check()


def test_a_url_teaches_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--url", "http://localhost:8000", "--model", "m", "--teach"]) == 2
    assert "halcyon bench digits --teach" in capsys.readouterr().err


def test_foreign_config_map_with_the_name_of_a_capacity_stays() -> None:
    taught = teach.measured(measured(batches({1: 86, 8: 128}), saturation=60, single_ms=88))
    writes: list[Any] = []
    foreign: dict[str, Any] = {"metadata": {"resourceVersion": "7"}, "data": {"limits.yaml": "a"}}
    cluster: Any = SimpleNamespace(
        namespace="team", find=lambda *_: foreign, create=lambda _, body, verb: writes.append((body, verb)) or body
    )
    with pytest.raises(
        InputError, match="ConfigMap digits-capacity exists in namespace team, and has no measured capacity"
    ):
        teach.write(cluster, MODEL, taught)
    assert writes == []
    foreign["data"] = {"capacity.json": "{}"}
    teach.write(cluster, MODEL, taught)
    assert [verb for _, verb in writes] == ["update"]
