"""Parts of results: whole or absent at any kill, and refused for another input."""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon_batch.errors import BatchError
from halcyon_batch.output_parts import FAILURES, MANIFEST, Manifest, OutputParts, RowResult, plain, rows_per_part
from halcyon_batch.storage import FolderStorage
from tests.drawn import draws

MANIFEST_OF_23 = Manifest(
    owner="u", name="b", digest="sha256:1", total=23, rows_per_part=5, format="Npz", made_with="sha256:2"
)


class KilledError(Exception):
    """The process ends here."""


class KilledStorage(FolderStorage):
    """A folder whose process is killed at one operation: before it, or after it took effect."""

    def __init__(self, path: str, left: int, *, after: bool) -> None:
        super().__init__(path)
        self._left, self._after = left, after

    def write(self, name: str, content: bytes) -> None:
        self._at(lambda: FolderStorage.write(self, name, content))

    def create(self, name: str, content: bytes) -> bool:
        return bool(self._at(lambda: FolderStorage.create(self, name, content)))

    def remove(self, name: str) -> None:
        self._at(lambda: FolderStorage.remove(self, name))

    def _at(self, act: Callable[[], Any]) -> Any:
        self._left -= 1
        if self._left == 0:
            if self._after:
                act()
            raise KilledError
        return act()


class Run(FolderStorage):
    """A runner in a thread, each of whose operations on the folder waits for `step`."""

    def __init__(self, folder: Path, manifest: Manifest, bad: frozenset[int]) -> None:
        super().__init__(str(folder))
        self.is_done = False
        self._may_go, self._at_rest = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._work, args=(manifest, bad))
        self._thread.start()
        self._at_rest.acquire()

    def _work(self, manifest: Manifest, bad: frozenset[int]) -> None:
        try:
            work(self, manifest, bad)
        finally:
            self.is_done = True
            self._at_rest.release()

    def step(self) -> None:
        """Let the runner do one operation."""
        self._may_go.release()
        self._at_rest.acquire()
        if self.is_done:
            self._thread.join()

    def _wait(self) -> None:
        self._at_rest.release()
        self._may_go.acquire()

    def write(self, name: str, content: bytes) -> None:
        self._wait()
        super().write(name, content)

    def create(self, name: str, content: bytes) -> bool:
        self._wait()
        return super().create(name, content)

    def remove(self, name: str) -> None:
        self._wait()
        super().remove(name)

    def names(self) -> set[str]:
        self._wait()
        return super().names()

    def read(self, name: str) -> bytes | None:
        self._wait()
        return super().read(name)


def result(row: int, bad: frozenset[int]) -> RowResult:
    if row in bad:
        return RowResult(row, "", None, f"bad {row}")
    return RowResult(row, "", {"y": np.full(2, row * 1.5, np.float32)})


def work(storage: FolderStorage, manifest: Manifest, bad: frozenset[int]) -> None:
    parts = OutputParts.begin(storage, manifest, "out")
    for part in parts.missing:
        parts.write(part, [result(row, bad) for row in range(*manifest.rows(part))])
    if not parts.is_complete:
        parts.finish()


def rows_of(folder: Path) -> Iterator[tuple[int, Any]]:
    for file in sorted(folder.glob("part-*")):
        if file.suffix == ".npz":
            with np.load(file) as archive:
                yield from zip(archive["row"].tolist(), archive["y"].tolist() if "y" in archive else [], strict=True)
        else:
            for line in file.read_text().splitlines():
                result = json.loads(line)
                yield result["row"], result["outputs"]["y"]


@draws(4)
@given(
    kills=st.lists(st.tuples(st.integers(1, 16), st.booleans()), max_size=8),
    bad=st.frozensets(st.integers(0, 22), max_size=8),
    kind=st.sampled_from(["Npz", "Jsonl"]),
)
def test_each_row_is_stored_once_after_kills_at_any_write(
    tmp_path_factory: pytest.TempPathFactory, kills: list[tuple[int, bool]], bad: frozenset[int], kind: str
) -> None:
    folder, manifest = tmp_path_factory.mktemp("out"), replace(MANIFEST_OF_23, format=kind)
    for left, after in kills:
        try:
            work(KilledStorage(str(folder), left, after=after), manifest, bad)
        except KilledError:
            continue
    work(FolderStorage(str(folder)), manifest, bad)

    assert list(rows_of(folder)) == [(row, [row * 1.5] * 2) for row in range(23) if row not in bad]
    failed = [json.loads(line) for line in (folder / FAILURES).read_text().splitlines()]
    assert failed == [{"row": row, "failure": f"bad {row}"} for row in sorted(bad)]
    names = {file.name for file in folder.iterdir()}
    assert names == {MANIFEST, FAILURES, *(f"part-{n:05d}.{kind.lower()}" for n in range(5))}
    assert json.loads((folder / MANIFEST).read_text())["complete"] == {"rows": 23 - len(bad), "failed": len(bad)}


@given(
    order=st.lists(st.booleans(), max_size=60),
    bad=st.tuples(st.frozensets(st.integers(0, 22), max_size=8), st.frozensets(st.integers(0, 22), max_size=8)),
    kind=st.sampled_from(["Npz", "Jsonl"]),
)
def test_two_runners_at_once_store_each_row_in_one_place(
    tmp_path_factory: pytest.TempPathFactory,
    order: list[bool],
    bad: tuple[frozenset[int], frozenset[int]],
    kind: str,
) -> None:
    """A pod of a node that is cut off goes on beside its successor, and both see other rows fail."""
    folder, manifest = tmp_path_factory.mktemp("out"), replace(MANIFEST_OF_23, format=kind)
    runs = [Run(folder, manifest, rows) for rows in bad]
    turns = iter(order)
    while any(not run.is_done for run in runs):
        run = runs[next(turns, runs[0].is_done)]
        (run if not run.is_done else runs[1 - runs.index(run)]).step()

    stored = [row for row, _ in rows_of(folder)]
    failed = {
        failure["row"]: failure["failure"] for failure in map(json.loads, (folder / FAILURES).read_text().splitlines())
    }
    assert stored == sorted(set(range(23)) - failed.keys())
    assert failed.keys() <= bad[0] | bad[1]
    assert all(failed[row] == f"bad {row}" for row in failed)


def test_a_resumed_output_counts_the_rows_and_failures_of_its_parts(tmp_path: Path) -> None:
    begun = OutputParts.begin(FolderStorage(str(tmp_path)), MANIFEST_OF_23, "out")
    begun.write(1, [result(row, frozenset({6, 8})) for row in range(5, 10)])
    begun.write(4, [result(row, frozenset()) for row in range(20, 23)])
    resumed = OutputParts.begin(FolderStorage(str(tmp_path)), MANIFEST_OF_23, "out")
    assert (resumed.missing, resumed.rows, resumed.failed) == ([0, 2, 3], 8, 2)


@pytest.mark.parametrize(
    ("changed", "reason", "message"),
    [
        ({"digest": "sha256:9"}, "InputChanged", "its digest is sha256:9, and out has results of sha256:1"),
        ({"owner": "v"}, "OutputExists", "out has the results of another BatchInference, b (u); name a new folder"),
        ({"made_with": "sha256:9"}, "RecipeChanged", "their digest is sha256:9, and out has results of sha256:2"),
    ],
)
def test_an_output_of_another_batch_is_refused_with_both_digests(
    tmp_path: Path, changed: dict[str, Any], reason: str, message: str
) -> None:
    OutputParts.begin(FolderStorage(str(tmp_path)), MANIFEST_OF_23, "out")
    with pytest.raises(BatchError) as caught:
        OutputParts.begin(FolderStorage(str(tmp_path)), replace(MANIFEST_OF_23, **changed), "out")
    assert (caught.value.reason, message in str(caught.value)) == (reason, True)
    assert (reason == "RecipeChanged") == ("or the name of the model in requests have changed" in str(caught.value))


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(BatchError, match=r"out isn't empty: it has thesis.tex, and no batch.json; name a new folder"):
        OutputParts.begin(FolderStorage(str(tmp_path)), MANIFEST_OF_23, "out")
    (tmp_path / MANIFEST).write_text("[]")
    with pytest.raises(BatchError, match=r"batch.json in out isn't one of a batch"):
        OutputParts.begin(FolderStorage(str(tmp_path)), MANIFEST_OF_23, "out")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("part-00001.npz", b"PK cut off"),
        ("part-00001.npz", None),
        ("failures-00001-1f2e.jsonl", b"no JSON\n"),
        ("failures-00001-1f2e.jsonl", b"[]\n"),
        ("batch.json", None),
    ],
    ids=["damaged part", "part is a folder", "damaged failures", "failures of another form", "manifest is a folder"],
)
def test_results_that_are_damaged_end_a_batch_with_the_file(tmp_path: Path, name: str, content: bytes | None) -> None:
    parts = OutputParts.begin(FolderStorage(str(tmp_path)), MANIFEST_OF_23, "out")
    (tmp_path / "failures-00001-1f2e.jsonl").write_text('{"row": 4, "failure": "bad"}\n')
    parts.write(1, [RowResult(row, "", {"y": np.zeros(1)}) for row in range(*MANIFEST_OF_23.rows(1))])
    (tmp_path / name).unlink()
    if content is None:
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BatchError, match=name) as caught:
        OutputParts.begin(FolderStorage(str(tmp_path)), MANIFEST_OF_23, "out")
    assert caught.value.reason == "OutputUnreadable"


@pytest.mark.parametrize("changed", [{"rows_per_part": 0}, {"rows_per_part": "8"}, {"total": None}])
def test_a_manifest_without_counts_of_rows_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    (tmp_path / MANIFEST).write_text(json.dumps(vars(MANIFEST_OF_23) | changed))
    with pytest.raises(BatchError, match=r"batch.json in out isn't one of a batch"):
        OutputParts.begin(FolderStorage(str(tmp_path)), MANIFEST_OF_23, "out")


def test_a_folder_for_results_that_cannot_be_read_is_refused() -> None:
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory) / "out"
        folder.mkdir(mode=0o000)
        Path(directory).chmod(0o755)
        user = os.geteuid()
        if user == 0:  # who may read all folders
            os.seteuid(65534)
        try:
            with pytest.raises(BatchError, match=rf"spec.output: {folder} can't be written: Permission denied"):
                OutputParts.begin(FolderStorage(str(folder)), MANIFEST_OF_23, "out")
        finally:
            os.seteuid(user)


def test_an_output_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("x")
    with pytest.raises(BatchError, match=r"is a file; it must be a folder"):
        FolderStorage(str(tmp_path / "out"))


def test_outputs_of_different_shapes_need_json_lines(tmp_path: Path) -> None:
    rows = [RowResult(row, "", {"y": np.zeros(row + 1)}) for row in range(5)]
    parts = OutputParts.begin(FolderStorage(str(tmp_path)), MANIFEST_OF_23, "out")
    with pytest.raises(
        BatchError, match=r"its shapes differ between rows, for example \[1\] and \[2\].*set output.format: Jsonl"
    ):
        parts.write(0, rows)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([{"p": 1.0}, {"p": 1.0, "q": 2.0}], "output q can't be stored as Npz: row 0 has no value for it"),
        ([{"p": 1.0, "q": 2.0}, {"p": 1.0}], "output q can't be stored as Npz: row 1 has no value for it"),
        ([{"p": 0.5}, {"p": None}], "output p can't be stored as Npz: its value in row 1 is None, and Npz has only"),
        ([{"p": None}, {"p": None}], "output p can't be stored as Npz: its value in row 0 is None, and Npz has only"),
        ([{"p": {"a": 1}}, {"p": {"a": 2}}], "output p can't be stored as Npz: its value in row 0 is {'a': 1}"),
        (
            [{"p": np.array([b"a", b"b\0"], object)}] * 2,
            "output p can't be stored as Npz: its value in row 0 ends with a zero byte",
        ),
        ([{"p": "a\0"}, {"p": "b"}], "output p can't be stored as Npz: its value in row 0 ends with a zero byte"),
        ([{"p": "cat"}, {"p": 1.5}], "output p can't be stored as Npz: its value in row 1 is 1.5, and Npz has only"),
        ([{"p": ["cat", 1.5]}] * 2, "output p can't be stored as Npz: its value in row 0 is 1.5, and Npz has only"),
        ([{"p": [[1, 2], [3]]}] * 2, "output p can't be stored as Npz: its lists have different lengths"),
        ([{"p": 2**53 + 1}, {"p": 0.5}], "no type of NumPy has its value in row 0, 9007199254740993, and the others"),
        ([{"p": 2**63}, {"p": -1}, {"p": 2**53 + 1}], "no type of NumPy has its value in row 2, 9007199254740993"),
        ([{"p": 10**30}], "no type of NumPy has its value in row 0, 1000000000000000000000000000000, and the others"),
    ],
)
def test_values_that_an_archive_would_lose_or_change_need_json_lines(
    tmp_path: Path, values: list[dict[str, Any]], message: str
) -> None:
    rows = [RowResult(row, "", outputs) for row, outputs in enumerate(values)]
    parts = OutputParts.begin(FolderStorage(str(tmp_path)), replace(MANIFEST_OF_23, total=len(values)), "out")
    with pytest.raises(BatchError, match=re.escape(message) + ".*set output.format: Jsonl"):
        parts.write(0, rows)
    assert not [*tmp_path.glob("part-*")]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([2**63 + 1, 1], "uint64"),
        ([[2**63 + 1, 0], np.array([3, 2**64 - 1], np.uint64)], "uint64"),
        ([np.float32(0.1), np.float32(np.nan)], "float32"),
        ([np.float32(0.1), 0.2, 3], "float64"),
        ([True, 2], "int64"),
        (["cat", "élan"], "<U4"),
        ([b"cat", b"dogs"], "|S4"),
    ],
)
def test_values_of_several_types_keep_their_values_in_an_archive(tmp_path: Path, values: list[Any], kind: str) -> None:
    rows = [RowResult(row, "", {"y": value}) for row, value in enumerate(values)]
    OutputParts.begin(FolderStorage(str(tmp_path)), replace(MANIFEST_OF_23, total=len(values)), "out").write(0, rows)
    with np.load(tmp_path / "part-00000.npz", allow_pickle=False) as archive:
        assert archive["y"].dtype == kind
        assert repr(archive["y"].tolist()) == repr([np.asarray(value, archive["y"].dtype).tolist() for value in values])


def test_equal_rows_make_equal_bytes_with_names_and_texts(tmp_path: Path) -> None:
    rows = [RowResult(n, f"{n}.jpg", {"file": np.array([b"cat"], object), "p": np.float32(n)}) for n in range(5)]
    parts = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        OutputParts.begin(FolderStorage(str(folder)), MANIFEST_OF_23, "out").write(0, rows)
        parts.append((folder / "part-00000.npz").read_bytes())
    assert parts[0] == parts[1]
    with np.load(io.BytesIO(parts[0])) as archive:
        assert archive["name"].tolist() == [f"{n}.jpg" for n in range(5)]
        assert archive["file"].tolist() == [[b"cat"]] * 5


def test_values_that_json_lacks_become_strings() -> None:
    value = {"a": np.array([1.5, np.nan, np.inf, -np.inf]), "b": b"cat", "c": b"\xff\x00", "d": np.int8(3)}
    assert plain(value) == {"a": [1.5, "NaN", "Infinity", "-Infinity"], "b": "cat", "c": "/wA=", "d": 3}
    nested = np.asarray({"score": np.float32(0.5), "none": np.nan, "at": dt.date(2026, 1, 2), "missing": None})
    assert plain({"best": nested}) == {"best": {"score": 0.5, "none": "NaN", "at": "2026-01-02", "missing": None}}


def test_parts_are_two_hundred_unless_rows_are_few_or_large() -> None:
    assert [rows_per_part(*sizes) for sizes in ((200_000, 100), (50, 100), (200_000, 2**20), (10, 2**30))] == [
        1000,
        100,
        16,
        1,
    ]
