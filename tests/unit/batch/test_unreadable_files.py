"""Files of a folder that can't be read: a volume that fails for a time, and a file that is always unreadable."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from halcyon_batch import functions
from halcyon_batch.functions import Functions
from halcyon_batch.input_source import open_input
from halcyon_batch.row_tensors import BatchModel
from halcyon_measure.inputs.tensors import ModelInput

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
