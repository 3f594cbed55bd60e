"""Archives of models, whole and otherwise."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.fetch import archive as module
from halcyon.fetch.archive import inside, unpack
from halcyon.fetch.errors import SourceError

MIB = 2**20


def packed(*members: tarfile.TarInfo | tuple[str, bytes], mode: str = "w:gz") -> io.BytesIO:
    """An archive of files (name, content) and of other members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]  # the mode is a variable
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    buffer.seek(0)
    return buffer


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def refusal(stream: io.BytesIO, folder: Path, limit: int = MIB) -> str:
    with pytest.raises(SourceError) as error:
        unpack(stream, folder, limit_bytes=limit)
    return str(error.value)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_files_and_folders_come_out_as_they_were(tmp_path: Path, mode: str) -> None:
    folder = tarfile.TarInfo("./1")
    folder.type = tarfile.DIRTYPE
    stream = packed(folder, ("./1/model.onnx", b"x" * 5000), ("config.pbtxt", b""), mode=mode)
    assert unpack(stream, tmp_path, limit_bytes=5000) == 5000
    assert (tmp_path / "1/model.onnx").read_bytes() == b"x" * 5000
    assert (tmp_path / "config.pbtxt").read_bytes() == b""


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "1/../../x", "", ".", "a\0b"])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SourceError, match="leads out of the model's folder"):
        inside(name)
    if name and "\0" not in name:
        inner = tmp_path / "inner"
        inner.mkdir()
        assert "leads out" in refusal(packed((name, b"x"), mode="w"), inner)
        assert list(tmp_path.iterdir()) == [inner]
        assert list(inner.iterdir()) == []


@given(st.text(min_size=1))
def test_a_path_stays_inside_whatever_the_name(name: str) -> None:
    try:
        path = inside(name)
    except SourceError:
        return
    assert not path.is_absolute()
    assert ".." not in path.parts


@pytest.mark.parametrize(
    "member",
    [
        link("2", "/etc"), link("1/a", "../../x"), link("1/a", "/etc/passwd"), link("1/a", "nothing"), link("1/a", "a"),
        link("1/a", "1/c", tarfile.LNKTYPE), link("1/a", "."*3 + "/../../x"),
    ],
)  # fmt: skip
def test_links_to_what_is_not_in_the_archive_are_refused(tmp_path: Path, member: tarfile.TarInfo) -> None:
    message = refusal(packed(("1/b", b"x"), member), tmp_path)
    assert f"{member.name} in the archive is a link to {member.linkname}, which isn't in the archive" in message
    assert "tar --dereference" in message


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_devices_and_pipes_are_refused(tmp_path: Path, kind: bytes) -> None:
    assert "1/a in the archive is a device or a pipe" in refusal(packed(("1/b", b"x"), link("1/a", "", kind)), tmp_path)


def test_links_within_the_archive_come_out_in_any_order(tmp_path: Path) -> None:
    # As in a cache of Hugging Face: the links are before the files that they lead to.
    members = [
        link("snapshots/5f/1/model.onnx", "../../../blobs/9c"), link("1", "snapshots/5f/1"),
        link("2/model.onnx", "blobs/9c", tarfile.LNKTYPE), link("3/model.onnx", "2/model.onnx", tarfile.LNKTYPE),
    ]  # fmt: skip
    unpack(packed(*members, ("blobs/9c", b"weights")), tmp_path, limit_bytes=MIB)

    for version in ("1", "2", "3"):
        assert (tmp_path / version / "model.onnx").read_bytes() == b"weights"
        assert (tmp_path / version / "model.onnx").resolve().is_relative_to(tmp_path.resolve())


def test_no_file_is_written_through_a_link(tmp_path: Path) -> None:
    outside, inner = tmp_path / "outside", tmp_path / "inner"
    outside.mkdir()
    inner.mkdir()
    for members in (
        [link("a", "../outside"), ("a/x", b"x")],
        [link("a", "."), link("a/a/b", "../../outside"), ("1/x", b"x")],
    ):
        refusal(packed(*members), inner)
        assert list(outside.iterdir()) == []


def test_attributes_of_macos_are_left_out(tmp_path: Path) -> None:
    unpack(packed(("._config.pbtxt", b"x"), ("1/._model.py", b"x"), ("1/model.py", b"x")), tmp_path, limit_bytes=MIB)

    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["1", "1/model.py"]


def test_a_bomb_stops_at_the_limit_before_it_is_written(tmp_path: Path) -> None:
    message = refusal(packed(("1/a", b"\0" * (2 * MIB))), tmp_path)
    assert "sizeLimit is 0.0 GiB; raise it" in message
    assert sum(file.stat().st_size for file in tmp_path.rglob("*")) <= MIB
    message = refusal(packed(*((f"1/{n}", b"\0" * (MIB // 2)) for n in range(3))), tmp_path)
    assert "sizeLimit" in message


def test_a_file_of_endless_names_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILES", 3)
    assert "more than 3 entries" in refusal(packed(*((f"1/{n}", b"") for n in range(4))), tmp_path)


@pytest.mark.parametrize(
    "broken",
    [
        lambda _: b"",
        lambda _: b"<html>not found</html>" * 100,
        lambda archive: archive[: len(archive) // 2],
        lambda archive: archive[:40] + b"\xff" * 40 + archive[80:],
    ],
    ids=["empty", "a page", "cut", "damaged"],
)
def test_a_broken_archive_is_reported(tmp_path: Path, broken: Callable[[bytes], bytes]) -> None:
    content = bytes(range(256)) * 64
    archive = packed(("1/model.onnx", content)).getvalue()
    assert "not a complete tar archive" in refusal(io.BytesIO(broken(archive)), tmp_path)


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_archives_of_several_compressed_streams_come_out_whole(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    archive = packed(("1/model.onnx", b"x" * 512), ("1/weights.bin", b"y" * 512), mode="w").getvalue()
    members = io.BytesIO(compress(archive[:1024]) + compress(archive[1024:]))
    assert unpack(members, tmp_path, limit_bytes=MIB) == 1024
    assert (tmp_path / "1" / "weights.bin").read_bytes() == b"y" * 512


@pytest.mark.parametrize("at", ["content", "checksum", "end"])
def test_an_archive_with_another_checksum_is_reported(tmp_path: Path, at: str) -> None:
    archive = packed(("1/weights.bin", b"y" * 512), mode="w").getvalue()
    damaged = bytearray(gzip.compress(archive, 0))
    damaged[damaged.find(b"yyyy") if at == "content" else -8] ^= 1
    content = gzip.compress(archive)[:-9] if at == "end" else bytes(damaged)
    assert "not a complete tar archive" in refusal(io.BytesIO(content), tmp_path)


@pytest.mark.parametrize(
    ("packed_as", "comes_as"), [(0o755, 0o755), (0o100, 0o755), (0o6755, 0o755), (0o600, 0o644), (0o666, 0o644)]
)
def test_a_file_keeps_its_execute_bit_and_no_more_of_its_mode(tmp_path: Path, packed_as: int, comes_as: int) -> None:
    first, info = tarfile.TarInfo("1/run"), tarfile.TarInfo("1/run")
    first.mode, info.mode = 0o777, packed_as
    unpack(packed(first, info), tmp_path, limit_bytes=MIB)
    assert (tmp_path / "1/run").stat().st_mode & 0o7777 == comes_as


def test_an_empty_folder_of_an_archive_comes_out(tmp_path: Path) -> None:
    folders = [tarfile.TarInfo(name) for name in ("./", "./1/", ".")]
    for folder in folders:
        folder.type = tarfile.DIRTYPE
    unpack(packed(*folders, ("config.pbtxt", b"c")), tmp_path, limit_bytes=MIB)
    assert (tmp_path / "1").is_dir()


@pytest.mark.parametrize("names", [("1", "1/model.py"), ("1/model.py", "1"), ("1", "1/")])
def test_a_file_and_a_folder_of_one_name_are_refused_by_name(tmp_path: Path, names: tuple[str, str]) -> None:
    members: list[tarfile.TarInfo | tuple[str, bytes]] = [(name, b"x") for name in names]
    if names[1].endswith("/"):
        members[1] = tarfile.TarInfo(names[1])
        members[1].type = tarfile.DIRTYPE
    message = refusal(packed(*members), tmp_path)
    assert (
        f"{names[1].rstrip('/')} in the model's source can't be written: a file and a folder have the same name"
        in message
    )


def test_a_name_longer_than_a_file_name_may_be_is_refused(tmp_path: Path) -> None:
    assert "a name may have at most 255 bytes" in refusal(packed(("1/" + "n" * 300, b"x")), tmp_path)
