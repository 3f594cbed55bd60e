"""Files of commands: complete, or with their previous content, also on a full disk."""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from halcyon_cli import output_files
from halcyon_cli.bench import result_folder
from halcyon_cli.commands import plan
from halcyon_cli.commands.measure import report
from halcyon_cli.errors import InputError
from tests.bench_documents import bench_document

OLD, NEW = b"old" * 10, b"new" * 2000


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Return a context manager within which no file can grow above a size, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.fixture(params=["file", "link", "hard link", "folder without new files"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of an existing file, with several obstacles to a replacement."""
    target = tmp_path / "target"
    target.write_bytes(OLD)
    target.chmod(0o640)
    if request.param == "file":
        return target
    link = tmp_path / "folder" / "link"
    link.parent.mkdir()
    if request.param == "link":
        link.symlink_to("../target")
    elif request.param == "hard link":
        link.hardlink_to(target)
    else:

        def refuse(*_: object) -> None:  # root may write to each folder
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

        monkeypatch.setattr(os, "open", refuse)
        return target
    return link


def test_a_replaced_file_keeps_its_permissions_and_links(path: Path) -> None:
    is_link = path.is_symlink()
    for content in (NEW, OLD, b""):
        output_files.write(path, content)
        target = path.resolve().parent / "target" if is_link else path
        assert (path.is_symlink(), path.read_bytes(), target.read_bytes()) == (is_link, content, content)
        assert target.stat().st_mode & 0o777 == 0o640
    assert not [*path.parent.glob(f"{output_files.PREFIX}*")]


def test_a_full_disk_leaves_the_previous_content(path: Path) -> None:
    with full_disk(1000), pytest.raises(OSError, match="File too large"):
        output_files.write(path, NEW)
    assert path.read_bytes() == OLD
    assert not [*path.parent.glob(f"{output_files.PREFIX}*")]


def test_a_new_file_has_the_permissions_of_the_umask(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    (tmp_path / "dangling").symlink_to("target")
    output_files.write(tmp_path / "dangling", NEW)
    assert (tmp_path / "target").read_bytes() == NEW
    assert (tmp_path / "target").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_pipe_takes_the_content(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    received = list[bytes]()
    reader = threading.Thread(target=lambda: received.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    output_files.write(tmp_path / "pipe", NEW)
    reader.join(10)
    assert received == [NEW]


def test_a_memory_or_report_on_a_full_disk_is_the_previous_one(tmp_path: Path) -> None:
    file, content = tmp_path / "file", NEW.decode()
    writers: list[Callable[[], None]] = [
        lambda: plan._write(file, content),
        lambda: report._write(content, str(file), [file]),
    ]
    for write in writers:
        file.write_bytes(OLD)
        with full_disk(1000), pytest.raises(InputError, match=r"file: can't write (it|the report): File too large"):
            write()
        assert file.read_bytes() == OLD


def test_a_result_that_fits_only_in_part_replaces_nothing(tmp_path: Path) -> None:
    for name in ("bench.json", "requests.npz"):
        (tmp_path / name).write_bytes(OLD)
    with full_disk(100_000):
        is_saved = result_folder.write(
            tmp_path, lambda folder: result_folder.write_document(folder, bench_document(), NEW * 100)
        )
    assert not is_saved
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"bench.json": OLD, "requests.npz": OLD}


def test_a_result_without_requests_leaves_none_of_an_earlier_one(tmp_path: Path) -> None:
    for name in ("requests.npz", "histogram.npz", "notes.txt"):
        (tmp_path / name).write_bytes(OLD)
    assert result_folder.write(tmp_path, lambda folder: result_folder.write_document(folder, bench_document(), None))
    assert {file.name for file in tmp_path.iterdir()} == {"bench.json", "notes.txt"}
