"""The bundle of `halcyon diagnose` as a file: its contents, its permissions, and what a failed write leaves."""

from __future__ import annotations

import errno
import io
import tarfile
from pathlib import Path

import pytest

from halcyon_cli.diagnose import bundle
from halcyon_cli.errors import InputError


def test_a_bundle_is_readable_by_its_owner_alone_and_never_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "b.tar.gz"
    bundle.write(file, {"tree.txt": "digits"}, root="b", at=0)
    assert file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as archive:
        content = archive.extractfile("b/tree.txt")
        assert content is not None
        assert content.read() == b"digits"
    with pytest.raises(InputError, match=r"b.tar.gz: exists already; choose another name"):
        bundle.write(file, {}, root="b", at=0)
    assert file.stat().st_size


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_bundle_that_can_not_be_written_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(io, "BytesIO", fail)
    with pytest.raises((InputError, KeyboardInterrupt)):
        bundle.write(tmp_path / "b.tar.gz", {"tree.txt": "digits"}, root="b", at=0)
    assert [*tmp_path.iterdir()] == []
