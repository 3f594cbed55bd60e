"""Data sets: their rows in order, their digests, and what can't be read."""

from __future__ import annotations

import errno
import gzip
import os
import tempfile
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from halcyon.api.documents.batch_documents import BatchBucket, BatchRecipe
from halcyon_batch import functions, input_data
from halcyon_batch.batch import Batch
from halcyon_batch.errors import BatchError
from halcyon_batch.input_source import check_output_place, open_input
from halcyon_batch.output_parts import Manifest
from halcyon_batch.row_tensors import BatchModel
from halcyon_measure.inputs.tensors import ModelInput

MANIFEST = Manifest(owner="u", name="b", digest="d", total=5, rows_per_part=5, format="Npz", made_with="m")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_of_an_archive_are_read_by_rows(tmp_path: Path, save: object) -> None:
    path = tmp_path / "rows.npz"
    x, y = np.arange(30, dtype=np.float32).reshape(10, 3), np.asfortranarray(np.arange(20).reshape(10, 2))
    save(path, x=x, y=y)  # type: ignore[operator]  # one of two functions of NumPy
    data = open_input(str(path), "")
    rows = data.read(4, 7)
    assert (data.total, [sample.row for sample in rows]) == (10, [4, 5, 6])
    assert [sample.value["x"].tolist() for sample in rows] == x[4:7].tolist()
    assert [sample.value["y"].tolist() for sample in rows] == y[4:7].tolist()


def test_lines_are_rows_without_the_blank_ones(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"x": 1}\n\n  \r\n[2]\nno json')
    data = open_input(str(path), "")
    assert [(sample.row, sample.value) for sample in data.read(0, data.total)] == [
        (0, b'{"x": 1}\n'),
        (1, b"[2]\n"),
        (2, b"no json"),
    ]


def test_positions_of_many_lines_take_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"1\n" * 500_000)
    tracemalloc.start()
    try:
        data = open_input(str(path), "")
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (data.total, data.read(499_999, 500_000)[0].value) == (500_000, b"1\n")
    assert peak_bytes < 20 * data.total


@pytest.mark.parametrize(("name", "format_"), [("rows.jsonl.gz", ""), ("rows.jsonl", ""), ("rows.gz", "Jsonl")])
def test_a_compressed_file_of_lines_is_refused(tmp_path: Path, name: str, format_: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b"1\n"))
    with pytest.raises(BatchError, match=rf"{name} is compressed by gzip; decompress it") as caught:
        open_input(str(tmp_path / name), format_)
    assert caught.value.reason == "InputUnreadable"


def test_files_of_a_folder_are_rows_in_order_of_their_paths(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / ".git").mkdir()
    for name in ("b/1.png", "a.png", "c.png", ".hidden", ".git/x"):
        (tmp_path / name).write_text("x")
    data = open_input(str(tmp_path), "")
    assert [(sample.name, sample.value) for sample in data.read(0, 3)] == [
        (name, str(tmp_path / name)) for name in ("a.png", "b/1.png", "c.png")
    ]


def test_a_subfolder_that_cannot_be_read_is_refused_by_name() -> None:
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "a.png").write_text("x")
        (folder / "b").mkdir(mode=0o000)
        folder.chmod(0o755)
        user = os.geteuid()
        if user == 0:  # who may read all folders
            os.seteuid(65534)
        try:
            with pytest.raises(BatchError, match=rf"spec.input: {folder}/b can't be read: Permission denied"):
                open_input(str(folder), "")
        finally:
            os.seteuid(user)


def test_a_link_to_a_folder_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "b.npy").touch()
    (tmp_path / "set" / "more").mkdir(parents=True)
    (tmp_path / "set" / "more" / "cats").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BatchError, match=r"set/more/cats is a link to a folder.*hide it as \.cats"):
        open_input(str(tmp_path / "set"), "")
    (tmp_path / "set" / "more" / "cats").rename(tmp_path / "set" / "more" / ".cats")
    (tmp_path / "set" / "a.npy").symlink_to(tmp_path / "elsewhere" / "b.npy")
    assert open_input(str(tmp_path / "set"), "").total == 1


def test_a_file_name_that_is_no_utf8_is_a_row(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.npy")).touch()
    data = open_input(str(tmp_path), "")
    assert os.fsencode(data.read(0, 1)[0].name) == b"caf\xe9.npy"
    assert data.is_unchanged()


def test_a_digest_changes_with_the_content_and_not_with_the_path(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.jsonl", "b.jsonl", "c.jsonl")]
    for path, content in zip(paths, ("1\n2\n", "1\n2\n", "1\n3\n"), strict=True):
        path.write_text(content)
    first, second, third = (open_input(str(path), "").digest for path in paths)
    assert first == second != third


def test_a_change_while_a_data_set_is_open_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    file, member = tmp_path / "a.jsonl", tmp_path / "folder" / "a.png"
    for path in (file, member):
        path.write_text("1\n")
    opened = [open_input(str(path), "") for path in (file, tmp_path / "folder")]
    assert [data_set.is_unchanged() for data_set in opened] == [True, True]
    for path in (file, member):
        os.utime(path, ns=(1, 1))
    assert [data_set.is_unchanged() for data_set in opened] == [False, False]


def test_a_large_folder_is_checked_by_the_files_of_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(100):
        (tmp_path / f"{n:03d}.npy").write_text("1")
    data = open_input(str(tmp_path), "")
    assert data.is_unchanged(0, 10)
    read: list[str] = []
    stat, digest = input_data._stat, data.digest_now

    def stat_of(path: Path) -> tuple[int, int]:
        read.append(path.name)
        return stat(path)

    def digest_of_all() -> str:
        read.append("all")
        return digest()

    monkeypatch.setattr(input_data, "_stat", stat_of)
    monkeypatch.setattr(data, "digest_now", digest_of_all)
    assert data.is_unchanged(10, 12)
    assert read == ["010.npy", "011.npy"]
    os.utime(tmp_path / "011.npy", ns=(1, 1))
    assert [data.is_unchanged(*rows) for rows in ((10, 12), (12, 14))] == [False, True]
    (tmp_path / "013.npy").unlink()
    assert [data.is_unchanged(*rows) for rows in ((12, 14), (14, 16))] == [False, True]
    assert "all" not in read
    assert not data.is_unchanged()
    assert read.pop() == "all"


@pytest.mark.parametrize(
    ("name", "content", "reason", "message"),
    [
        ("none.npz", None, "InputUnreadable", "none.npz can't be read: No such file or directory"),
        ("rows.csv", b"1,2", "InputUnreadable", "unknown by its name; use .npz, .npy, .jsonl, .parquet or a folder"),
        ("rows.npz", b"no archive", "InputUnreadable", "isn't a file of NumPy"),
        ("rows.jsonl", b"\n\n", "InputEmpty", "has no rows"),
    ],
)
def test_an_unreadable_data_set_is_refused(
    tmp_path: Path, name: str, content: bytes | None, reason: str, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BatchError) as caught:
        open_input(str(tmp_path / name), "")
    assert (caught.value.reason, message in str(caught.value)) == (reason, True), str(caught.value)


@pytest.mark.parametrize(
    ("name", "format_", "message"),
    [
        ("pipe.npz", "", "pipe.npz is no file, and its format is Npz"),
        ("pipe.npz", "Jsonl", "pipe.npz is no file, and its format is Jsonl"),
        ("folder", "", "folder/pipe is no file; remove it, or hide it as .pipe"),
        ("folder", "Npz", "folder is a folder, and its format is Npz"),
        ("none", "Folder", "none can't be read: No such file or directory"),
        ("rows.npz", "Folder", "rows.npz is a file, and input.format is Folder"),
    ],
)
def test_a_data_set_that_is_no_file_is_refused(tmp_path: Path, name: str, format_: str, message: str) -> None:
    (tmp_path / "folder").mkdir()
    for pipe in ("pipe.npz", "folder/pipe"):
        os.mkfifo(tmp_path / pipe)
    np.savez(tmp_path / "rows.npz", x=np.zeros(3))
    with pytest.raises(BatchError) as caught:
        open_input(str(tmp_path / name), format_)
    assert (caught.value.reason, message in str(caught.value)) == ("InputUnreadable", True), str(caught.value)


def test_arrays_of_different_lengths_are_refused_with_both(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", x=np.zeros(3), y=np.zeros(4))
    with pytest.raises(BatchError, match=r"differ in their rows: x 3, y 4"):
        open_input(str(tmp_path / "rows.npz"), "")


def test_pickled_objects_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", x=np.array([{}, []], object))
    with pytest.raises(BatchError, match=r"isn't a file of NumPy: x.npy has Python objects"):
        open_input(str(tmp_path / "rows.npz"), "")


def recipe(source: str, output: str) -> BatchRecipe:
    places = {"input": source, "output": output}
    buckets: dict[str, Any] = {f"{name}_bucket": BatchBucket(url=url) for name, url in places.items() if "://" in url}
    defaults: dict[str, Any] = {
        "owner": "u",
        "name": "b",
        "model": "m",
        "url": "http://m",
        "input_format": "",
        "output_format": "",
    }
    return BatchRecipe(**defaults | places | buckets)


async def test_results_in_the_folder_of_the_rows_are_refused(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    np.save(tmp_path / "set" / "a.npy", np.zeros(3))
    (tmp_path / "mount").symlink_to(tmp_path)  # one volume has two paths in the runner's pod
    for output in ("set", "set/results/night", "mount/set/results"):
        with pytest.raises(BatchError, match=r"is in the folder of spec.input.*for example set-results") as caught:
            await Batch(recipe(f"{tmp_path}/set", f"{tmp_path}/{output}")).run()
        assert caught.value.reason == "OutputUnwritable"
    assert [*(tmp_path / "set").iterdir()] == [tmp_path / "set" / "a.npy"]


@pytest.mark.parametrize(
    ("source", "output", "is_refused"),
    [
        ("s3://sets/a", "s3://sets/a/results", True),
        ("s3://sets/a/", "s3://sets/a", True),
        ("s3://sets", "s3://sets/results", True),
        ("s3://sets/a", "s3://sets/a-results", False),
        ("s3://sets/a/b", "s3://sets/a", False),
        ("s3://sets/a", "gs://sets/a/results", False),
        ("s3://sets/a", "{folder}/a", False),
        ("{folder}", "s3://sets/a", False),
        ("{folder}", "{folder}-results", False),
    ],
)
def test_results_are_beside_the_rows_in_a_bucket(tmp_path: Path, source: str, output: str, *, is_refused: bool) -> None:
    batch_recipe = recipe(source.format(folder=tmp_path), output.format(folder=tmp_path))
    if is_refused:
        with pytest.raises(BatchError, match="so the results would be rows"):
            check_output_place(batch_recipe)
    else:
        check_output_place(batch_recipe)


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EIO, errno.ETIMEDOUT])
def test_a_volume_that_fails_for_a_time_ends_no_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    (tmp_path / "1.json").write_text("[1]")
    row = open_input(str(tmp_path), "").read(0, 1)
    monkeypatch.setattr(input_data, "_listed", fail)
    monkeypatch.setattr(Path, "read_bytes", fail)
    model = BatchModel((ModelInput("x", "FP32", (-1, 1)),), is_batched=True)
    for use in (lambda: open_input(str(tmp_path), ""), lambda: functions._prepare("", row, model)):
        with pytest.raises(OSError, match=os.strerror(code)):
            use()


async def test_an_unreadable_part_is_left_to_the_next_runner() -> None:
    def read(*_: int) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    run: Any = SimpleNamespace(data=SimpleNamespace(read=read), parts=SimpleNamespace(manifest=MANIFEST))
    with pytest.raises(OSError, match="Stale file handle"):
        await Batch(recipe("rows.npz", "out"))._send_part(0, run)
