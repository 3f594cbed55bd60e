"""The user's functions: their values reach the results, and files that can't be read."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halcyon_batch import functions
from halcyon_batch.errors import BatchError
from halcyon_batch.functions import Functions, check
from halcyon_batch.input_source import open_input
from halcyon_batch.output_parts import plain
from halcyon_batch.row_tensors import BatchModel
from halcyon_measure.inputs.tensors import ModelInput


def _finished(path: Path, text: str) -> Any:
    path.write_text(text)
    hooks = Functions("", f"{path}:finish", BatchModel((), is_batched=True), 1)
    try:
        (result,) = asyncio.run(hooks.finish([{"y": np.ones((1, 3), np.float32)}]))
    finally:
        hooks.close()
    return plain(result) if isinstance(result, Mapping) else result


@pytest.mark.parametrize(
    ("returned", "stored"),
    [
        ("{'best': {'label': 'cat', 'score': outputs['y'][0, 0]}}", {"best": {"label": "cat", "score": 1.0}}),
        ("{'label': Label.CAT}", {"label": "Label.CAT"}),
        ("{'label': None, 'text': b'a'}", {"label": None, "text": "a"}),
        ("[{'label': 'cat'}, {'label': 'dog'}]", {"value": [{"label": "cat"}, {"label": "dog"}]}),
        ("{'best': [['cat', 0.9], ('dog', True)]}", {"best": [["cat", 0.9], ["dog", True]]}),
        ("{'polygons': [[1, 2], [3]], 'hash': [2**63 + 1, -1]}", {"polygons": [[1, 2], [3]], "hash": [2**63 + 1, -1]}),
        (
            "{'text': 'a\\0', 'level': Level.HIGH, 'score': outputs['y'][0, 0]}",
            {"text": "a\0", "level": "high", "score": 1.0},
        ),
    ],
)
def test_values_of_finish_are_stored_with_nested_ones_and_own_classes(
    tmp_path: Path, returned: str, stored: Mapping[str, Any]
) -> None:
    own = "import enum\nclass Label(enum.Enum):\n    CAT = 1\nclass Level(str, enum.Enum):\n    HIGH = 'high'\n"
    assert _finished(tmp_path / "hook.py", f"{own}def finish(outputs):\n    return {returned}\n") == stored


def test_an_output_without_a_batch_dimension_is_stored_whole() -> None:
    hooks = Functions("", "", BatchModel((), is_batched=True), 1)
    outputs = {"boxes": np.ones((7, 4)), "none": np.ones((0, 4)), "count": np.array(7), "scores": np.ones((1, 3))}
    try:
        shapes = {name: array.shape for name, array in hooks.stored(outputs).items()}
    finally:
        hooks.close()
    assert shapes == {"boxes": (7, 4), "none": (0, 4), "count": (), "scores": (3,)}


def test_a_function_that_exits_leaves_its_row_without_a_result(tmp_path: Path) -> None:
    assert _finished(tmp_path / "hook.py", "def finish(outputs):\n    raise SystemExit(0)\n") == (
        "hook.py, line 2: SystemExit: 0"
    )


def test_a_file_of_functions_that_exits_ends_the_batch_with_its_cause(tmp_path: Path) -> None:
    path = tmp_path / "hook.py"
    path.write_text("def finish(outputs):\n    return outputs\nraise SystemExit(0)\n")
    with pytest.raises(BatchError, match=r"spec\.hooks: .*hook\.py, line 3: SystemExit: 0"):
        check("", f"{path}:finish")


MODEL = BatchModel((ModelInput("x", "FP32", (-1, 1)),), is_batched=True)
FUNCTION = "import json, pathlib\ndef prepare(path):\n    return [json.loads(pathlib.Path(path).read_bytes())]\n"


class Volume:
    """A folder of files on a volume, some of which give EIO for a number of reads."""

    def __init__(self, path: Path, files: int) -> None:
        self.path, self.failures, self.waits_s = path, dict[str, float](), list[float]()
        for number in range(files):
            (path / f"{number}.json").write_text(f"[{number + 1}]")

    def check(self, path: Path) -> None:
        self.failures[path.name] = self.failures.get(path.name, 0.0) - 1.0
        if self.failures[path.name] >= 0.0:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    def fail(self, files: Iterable[int], reads: float = float("inf")) -> None:
        self.failures = {f"{number}.json": reads for number in files}

    def prepared(self, prepare: str = "") -> list[Any]:
        """Return the value of each row, or the reason why it has none."""

        async def run() -> list[Any]:
            hooks = Functions(prepare, "", MODEL, 1, sleep=self._wait)
            if prepare:
                hooks._pool = ThreadPoolExecutor(1)  # in this process, where reads fail
            try:
                return await hooks.prepare(open_input(str(self.path), "Folder").read(0, len([*self.path.iterdir()])))
            finally:
                hooks.close()

        return [row if isinstance(row, str) else row["x"].item() for row in asyncio.run(run())]

    async def _wait(self, seconds: float) -> None:
        self.waits_s.append(seconds)


@pytest.fixture
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Volume:
    volume, read, is_readable = Volume(tmp_path, 5), Path.read_bytes, functions._is_readable

    def read_bytes(path: Path) -> bytes:
        volume.check(path)
        return read(path)

    def readable(path: str) -> bool:
        try:
            volume.check(Path(path))
        except OSError:
            return False
        return is_readable(path)

    (tmp_path.parent / "hooks.py").write_text(FUNCTION)
    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    monkeypatch.setattr(functions, "_is_readable", readable)
    return volume


@pytest.fixture(params=["", "hooks.py:prepare"])
def prepare(request: pytest.FixtureRequest, volume: Volume) -> str:
    return request.param and f"{volume.path.parent}/{request.param}"


@pytest.mark.parametrize("bad", [0, 2, 4])
def test_a_file_that_is_always_unreadable_is_a_failed_row(volume: Volume, prepare: str, bad: int) -> None:
    volume.fail([bad])
    rows = volume.prepared(prepare)
    assert rows.pop(bad) == f"{bad}.json can't be read: Input/output error"
    assert rows == [number + 1.0 for number in range(5) if number != bad]
    assert 2 <= len(volume.waits_s) <= 5


def test_a_file_that_is_unreadable_for_a_moment_is_read_again(volume: Volume, prepare: str) -> None:
    volume.fail([2], reads=2.0)
    assert volume.prepared(prepare) == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_volume_without_a_readable_file_ends_the_runner(volume: Volume, prepare: str) -> None:
    volume.fail(range(5))
    with pytest.raises(OSError, match="Input/output error"):
        volume.prepared(prepare)


def test_an_error_of_a_function_beside_a_readable_file_is_its_rows(volume: Volume) -> None:
    hooks = volume.path.parent / "other.py"
    hooks.write_text("def prepare(path):\n    raise TimeoutError(110, 'Connection timed out')\n")
    assert volume.prepared(f"{hooks}:prepare")[0].startswith("other.py, line 2: TimeoutError: [Errno 110]")
