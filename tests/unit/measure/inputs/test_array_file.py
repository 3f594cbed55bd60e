"""Files of NumPy that are cut off, damaged, renamed or of another kind: one error for each command that reads them."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from halcyon_batch.errors import BatchError
from halcyon_batch.input_data import ArrayData
from halcyon_measure.errors import ModelError, TensorError
from halcyon_measure.inputs import array_file
from halcyon_measure.inputs.tensors import InputFile, ModelInput, tensors
from halcyon_measure.measurement import _expected_names
from halcyon_measure.results.sections.static import TensorShape
from halcyon_measure.variants import data

X = ModelInput("x", "FP32", (-1, 4))


def packed() -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, x=np.random.default_rng(1).random((100, 4)).astype(np.float32))
    return stream.getvalue()


def archive(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as writer:
        for name, content in members.items():
            writer.writestr(name, content)
    return stream.getvalue()


DAMAGED = {
    "cut off": packed()[:700],
    "damaged": packed()[:60] + b"\xff" * 30 + packed()[90:],
    "no array": archive(x=b"hello"),
    "empty": b"",
    "text": b"x,y\n1,2\n",
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_archive_is_named_by_each_reader(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "rows.npz"
    file.write_bytes(content)
    with pytest.raises(TensorError, match="not a NumPy array"):
        tensors([InputFile(str(file), content)], [X])
    with pytest.raises(TensorError, match=r"rows\.npz: not an \.npz file with outputs by name"):
        _expected_names(str(file))
    with pytest.raises(ModelError, match=r"rows\.npz: not an \.npz file"):
        data.read(file, [TensorShape(name="x", datatype="FP32", shape=("n", "4"))])
    with pytest.raises(BatchError, match="isn't a file of NumPy"):
        ArrayData(file)


def test_a_renamed_file_is_read_by_its_content(tmp_path: Path) -> None:
    array = np.ones((1, 4), np.float32)
    stream = io.BytesIO()
    np.save(stream, array)
    assert array_file.arrays(io.BytesIO(stream.getvalue())).keys() == {""}
    arrays = tensors([InputFile("renamed.npz", stream.getvalue())], [X])
    assert np.array_equal(arrays["x"], array)
    assert tensors([InputFile("renamed.npy", packed())], [X])["x"].shape == (100, 4)
    (tmp_path / "expected.npz").write_bytes(stream.getvalue())
    with pytest.raises(TensorError, match="it has no output"):
        _expected_names(str(tmp_path / "expected.npz"))


def test_json_that_is_nested_too_deeply_is_no_traceback() -> None:
    with pytest.raises(TensorError, match=r"deep\.json: invalid JSON"):
        tensors([InputFile("deep.json", b"[" * 200_000)], [X])


def test_a_null_is_not_sent_as_a_word() -> None:
    with pytest.raises(TensorError, match=r"x\.json: it has a null, and t BYTES\[-1, 1\] needs a text"):
        tensors([InputFile("x.json", b'[["a"], [null]]')], [ModelInput("t", "BYTES", (-1, 1))])


def test_a_number_beyond_the_type_is_not_sent_as_infinity() -> None:
    half = ModelInput("h", "FP16", (-1, 1))
    with pytest.raises(TensorError, match=r"70000 is above the largest FP16, 65504"):
        tensors([InputFile("x.json", b"[[1], [70000.0]]")], [half])
    assert np.isinf(tensors([InputFile("x.json", b"[[1], [Infinity]]")], [half])["h"]).any()
