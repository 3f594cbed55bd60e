"""`halcyon bench --save FOLDER`: a folder that can't be written to is found before the load, and loses no result."""

from __future__ import annotations

from pathlib import Path

import pytest

from halcyon_cli.bench import result_folder
from halcyon_cli.errors import InputError
from tests.bench_documents import bench_document


def test_a_folder_is_created_before_the_measurement(tmp_path: Path) -> None:
    result_folder.check(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(
        InputError, match=r"--save .*run: can't write files into it: File exists; for example --save /tmp/run"
    ):
        result_folder.check(tmp_path / "run")


def test_a_full_disk_is_reported_after_the_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def save(_: Path) -> str:
        raise OSError(28, "No space left on device")

    assert not result_folder.write(tmp_path, save)
    assert "the result isn't complete there: No space left on device" in capsys.readouterr().err


def test_a_result_without_requests_says_that_they_are_missing(tmp_path: Path) -> None:
    message = result_folder.write_document(tmp_path, bench_document(), None)
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]
    assert "there is no requests.npz" in message
