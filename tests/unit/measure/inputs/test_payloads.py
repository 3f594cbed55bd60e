"""Payloads: random values within the types of the model's metadata, and files; every shape that doesn't fit is refused."""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from halcyon_measure.engine.job import PayloadSettings
from halcyon_measure.errors import TensorError
from halcyon_measure.inputs.payloads import Rows, file_payloads, random_payloads
from halcyon_measure.inputs.tensors import InputFile, ModelInput
from halcyon_measure.measurement import Measurement
from halcyon_measure.protocols import target
from halcyon_measure.protocols.reply import Outcome
from halcyon_measure.results.columns import Columns
from halcyon_measure.results.folded import Folded
from halcyon_measure.results.run import Run
from halcyon_measure.schedule.scenario import Scenario
from tests.bench_documents import bench_run

PIXELS = ModelInput("pixels", "FP32", (-1, 64))
SEED = ModelInput("seed", "INT32", (-1, 1), is_optional=True)
KINDS = ("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BF16", "BYTES")  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_random_values_have_the_type_and_shape_of_the_metadata(kind: str) -> None:
    payloads = random_payloads([ModelInput("x", kind, (-1, 3))], rows=Rows(2, 2), shapes={}, seed=1)
    assert {payload.tensors["x"].shape for payload in payloads} == {(2, 3)}
    values = np.concatenate([payload.tensors["x"].ravel() for payload in payloads])
    if kind == "BYTES":
        assert {len(value) for value in values} == {16}
    else:
        assert values.min() >= 0
        assert values.max() <= (1 if kind in {"BOOL", "FP16", "FP32", "FP64", "BF16"} else 99)
    assert len(set(values.tolist())) > 1


def test_each_number_of_rows_of_a_range_is_as_frequent() -> None:
    payloads = random_payloads([PIXELS], rows=Rows.parse("1..8"), shapes={}, seed=1)
    assert Counter(payload.rows for payload in payloads) == dict.fromkeys(range(1, 9), 8)
    assert [payload.rows for payload in payloads] != sorted(payload.rows for payload in payloads)


def test_an_open_dimension_takes_the_given_size() -> None:
    (first, *_) = random_payloads(
        [ModelInput("image", "FP32", (-1, 3, -1, -1))], rows=Rows(), shapes={"image": (3, 8, 4)}, seed=1
    )
    assert first.tensors["image"].shape == (1, 3, 8, 4)


@pytest.mark.parametrize(
    ("model_input", "shapes", "message"),
    [
        (ModelInput("x", "FP32", (-1, -1)), {}, "input x FP32[-1, -1] has a dimension of any size; give one, for example --shape x=64"),
        (PIXELS, {"pixels": (63,)}, "shape of pixels is 63, but pixels FP32[-1, 64] needs 64 after its rows (--rows); for example --shape pixels=64"),
        (ModelInput("x", "FP32", (-1, -1)), {"x": (3, 5)}, "shape of x is 3,5, but x FP32[-1, -1] needs N after its rows (--rows); for example --shape x=64"),
        (ModelInput("x", "FP32", (-1,)), {"x": (3,)}, "needs no size after its rows (--rows); leave --shape x out"),
        (PIXELS, {"pixel": (64,)}, "shape of pixel: the model has no such input; it has pixels"),
        (ModelInput("x", "FP8", (-1, 1)), {}, "input x FP8[-1, 1] has an unknown data type"),
    ],
)  # fmt: skip
def test_a_shape_that_does_not_fit_is_refused(
    model_input: ModelInput, shapes: dict[str, tuple[int, ...]], message: str
) -> None:
    with pytest.raises(TensorError) as caught:
        random_payloads([model_input], rows=Rows(), shapes=shapes, seed=1)
    assert message in str(caught.value)


@pytest.mark.parametrize("kind", ["FP32", "BYTES", "INT8"])
def test_a_request_larger_than_the_memory_of_payloads_is_refused(kind: str) -> None:
    huge = ModelInput("x", kind, (-1, 10**9, 1000))
    with pytest.raises(
        TensorError, match=r"of which input x .* has most; at most 256 MiB are possible, for example --rows 1"
    ):
        random_payloads([PIXELS, huge], rows=Rows(), shapes={}, seed=1)


def test_any_negative_dimension_needs_a_size() -> None:
    with pytest.raises(TensorError, match=r"has a dimension of any size; give one, for example --shape x=64,0"):
        random_payloads([ModelInput("x", "FP32", (-1, -5, 0))], rows=Rows(), shapes={}, seed=1)


def test_several_rows_need_a_dimension_of_rows() -> None:
    with pytest.raises(TensorError, match=r"rows is 8, but input x FP32\[4\] has no dimension of rows; use --rows 1"):
        random_payloads([ModelInput("x", "FP32", (4,))], rows=Rows.parse("8"), shapes={}, seed=1)


@pytest.mark.parametrize("text", ["0", "9..8", "-1", "1..", "4097", "two"])
def test_invalid_rows_are_refused(text: str) -> None:
    with pytest.raises(TensorError, match=r"for example 8 or 1\.\.8"):
        Rows.parse(text)


def npy(path: str, shape: tuple[int, ...]) -> InputFile:
    out = io.BytesIO()
    np.save(out, np.full(shape, int(path[0]), np.float32))
    return InputFile(path, out.getvalue())


def test_a_file_of_one_row_is_repeated_to_the_wanted_rows() -> None:
    payloads = file_payloads([[npy("1.npy", (64,))], [npy("2.npy", (1, 64))]], [PIXELS], rows=Rows(4, 4), seed=1)
    assert [payload.tensors["pixels"].shape for payload in payloads] == [(4, 64), (4, 64)]
    assert [float(payload.tensors["pixels"].mean()) for payload in payloads] == [1, 2]


def test_a_file_of_several_rows_stays_as_it_is() -> None:
    (payload,) = file_payloads([[npy("3.npy", (5, 64))]], [PIXELS], rows=Rows(4, 4), seed=1)
    assert payload.rows == 5


@pytest.mark.parametrize(
    ("kind", "values", "sent"),
    [
        ("UINT64", [2**63 + 1, 1], [2**63 + 1, 1]),
        ("INT64", [2**53 + 1, 1.0], [2**53 + 1, 1]),
        ("BYTES", [2**63 + 1, 1], [b"9223372036854775809", b"1"]),
        ("FP64", [10**20, 0.5], [1e20, 0.5]),
        ("FP64", [2**53 + 1, 0.5], [2.0**53, 0.5]),
    ],
)
def test_integers_of_a_json_file_keep_their_digits(kind: str, values: list[float], sent: list[object]) -> None:
    (payload,) = file_payloads(
        [[InputFile("x.json", json.dumps(values).encode())]], [ModelInput("x", kind, (-1, 2))], rows=Rows(), seed=1
    )
    assert payload.tensors["x"].tolist() == [sent]


def test_an_integer_above_all_types_is_refused_by_range() -> None:
    file = InputFile("x.json", json.dumps([10**20, 1]).encode())
    with pytest.raises(TensorError, match=r"not every value is an integer in the range of UINT64"):
        file_payloads([[file]], [ModelInput("x", "UINT64", (-1, 2))], rows=Rows(), seed=1)


@pytest.mark.parametrize(
    ("inputs", "shapes", "sent"),
    [
        ([PIXELS, SEED], {}, {"pixels"}),
        ([PIXELS, SEED], {"seed": (1,)}, {"pixels", "seed"}),
        ([SEED], {}, {"seed"}),
    ],
)
def test_optional_inputs_have_no_random_values_unless_asked_for(
    inputs: list[ModelInput], shapes: dict[str, tuple[int, ...]], sent: set[str]
) -> None:
    (first, *_) = random_payloads(inputs, rows=Rows(), shapes=shapes, seed=1)
    assert first.tensors.keys() == sent


def test_file_without_an_optional_input_is_a_whole_request() -> None:
    file = InputFile("x.json", json.dumps({"pixels": [[0.5] * 64]}).encode())
    (payload,) = file_payloads([[file]], [PIXELS, SEED], rows=Rows(), seed=1)
    assert payload.tensors.keys() == {"pixels"}


def test_several_files_of_a_plain_post_are_bodies_in_turn(tmp_path: Path) -> None:
    paths = [tmp_path / "a.jpg", tmp_path / "b.jpg"]
    for path in paths:
        path.write_bytes(path.name.encode())
    to = target.parse("http://host/predict", api="post", transport=None, encoding=None)
    settings = PayloadSettings(samples=(tuple(("", str(path)) for path in paths),))
    assert [payload.tensors["body"].tobytes() for payload in settings.payloads(to)] == [b"a.jpg", b"b.jpg"]


@pytest.mark.parametrize(("own", "text"), [([5, 5], "5"), ([2, 8, 4], "2..8")])
def test_result_has_the_rows_of_the_files_that_were_sent(own: list[int], text: str) -> None:
    rows = [
        (n, n, n, n, n + 0.1, n + 0.1, n + 0.1, 0, 0, Outcome.ANSWERED, -1, count, 9, 9, -1)
        for n, count in enumerate(own)
    ]
    run = Run(Columns.of(rows), (), (), 0.0, None, float(len(own)), partial=False, usage=())
    to = target.parse("http://host", api="kserve", transport=None, encoding=None, model="m")
    settings = PayloadSettings(samples=((("", "x.npy"),),))
    document = Measurement(target=to, scenario=Scenario(), payload=settings).document(run, made_by="test")
    assert document.target.rows == text


def test_few_files_are_sent_with_each_number_of_rows() -> None:
    rows = Rows.parse("1..8")
    payloads = file_payloads([[npy("1.npy", (64,))]], [PIXELS], rows=rows, seed=1)
    assert Counter(payload.rows for payload in payloads) == dict.fromkeys(range(1, 9), 1)
    payloads = file_payloads([[npy(f"{n}.npy", (64,))] for n in range(9)], [PIXELS], rows=rows, seed=1)
    assert Counter(payload.rows for payload in payloads) == dict.fromkeys(range(1, 9), 2)
    several = file_payloads([[npy("3.npy", (5, 64))]], [PIXELS], rows=rows, seed=1)
    assert [payload.rows for payload in several] == [5]


def test_counted_requests_have_the_rows_of_their_files() -> None:
    run = bench_run(rows=8)
    counts = Folded()
    counts.add(run.columns)
    to = target.parse("http://host", api="kserve", transport=None, encoding=None, model="m")
    payload = PayloadSettings(samples=((("", "x.npy"),),))
    measurement = Measurement(target=to, scenario=Scenario(), payload=payload)
    assert measurement._rows(run) == "8"
    assert measurement._rows(replace(run, columns=Columns.of([]), folded=counts)) == "8"


def test_each_number_of_rows_of_large_inputs_is_as_frequent() -> None:
    large = ModelInput("x", "UINT8", (-1, 2_500_000))
    payloads = random_payloads([large], rows=Rows.parse("1..8"), shapes={}, seed=1)
    assert Counter(payload.rows for payload in payloads) == dict.fromkeys(range(1, 9), 1)


@pytest.mark.parametrize(("own", "rows", "sent"), [(1, "2", 2), (3, "3", 3), (3, "1..8", 3)])
def test_chosen_rows_that_a_file_can_have_are_sent(own: int, rows: str, sent: int, tmp_path: Path) -> None:
    settings, to = _rows_of_a_file(own, rows, tmp_path / "x.npy")
    assert [payload.rows for payload in settings.payloads(to)] == [sent]


@pytest.mark.parametrize("rows", ["1", "2", "4..8"])
def test_chosen_rows_that_a_file_lacks_are_rejected(rows: str, tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    settings, to = _rows_of_a_file(3, rows, file)
    with pytest.raises(TensorError, match=f"^rows is {rows}, but {file} has 3 rows, and .* write --rows 3$"):
        settings.payloads(to)
    assert replace(settings, has_chosen_rows=False).payloads(to)[0].rows == 3


def _rows_of_a_file(own: int, rows: str, file: Path) -> tuple[PayloadSettings, target.Target]:
    np.save(file, np.zeros((own, 64), np.float32))
    to = target.parse("http://host", api="kserve", transport=None, encoding=None, model="m")
    settings = PayloadSettings(samples=((("", str(file)),),), rows=Rows.parse(rows), has_chosen_rows=True)
    return settings, replace(to, inputs=(PIXELS,))
