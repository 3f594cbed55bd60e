"""Model repositories as git, tar, object stores, Windows and Hugging Face leave them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from halcyon.api.documents.model_overlay import Overlay, VersionPolicy
from halcyon.fetch import mounted_source
from halcyon.fetch.errors import SourceError
from halcyon.model_config.errors import ModelConfigError
from tests.unit.fetch.test_main import OWN, Pod, unprivileged

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1073741824\n"
BOMS = {"utf-8": "utf-8-sig", "utf-16-le": "utf-16", "utf-16-be": "utf-16-be"}


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


@pytest.mark.parametrize(
    ("files", "arguments", "folder"),
    [
        (["digits/1/model.py", "digits/config.pbtxt"], [], "digits"),
        (["digits/1/model.py", "README.md", ".git/HEAD", "._digits"], [], "digits"),
        (["zoo/digits/1/model.py"], ["--path=zoo"], "zoo/digits"),
    ],
)
def test_a_model_one_folder_too_deep_is_found(pod: Pod, files: list[str], arguments: list[str], folder: str) -> None:
    for file in files:
        pod.put(file, OWN if file.endswith("pbtxt") else b"x")

    assert pod.fetch(Overlay("m"), *arguments) == 0
    assert (pod.repository / "m" / "1").readlink() == pod.source / folder / "1"


@pytest.mark.parametrize("name", ["1/model.onnx", "1/weights/a.bin"])
def test_a_pointer_of_git_lfs_is_named_with_its_size(pod: Pod, name: str) -> None:
    pod.put("1/model.py")
    pod.put(name, POINTER)
    reason, message = pod.refusal()

    assert reason == "ModelSourceNotFound"
    assert (
        f"{name} in the model's source is a pointer of Git LFS and not the file itself, which has 1073741824 bytes"
        in message
    )
    assert "run git lfs pull" in message


def test_a_pointer_beside_the_version_folders_stops_no_model(pod: Pod) -> None:
    pod.put("1/model.py")
    pod.put("docs/picture.png", POINTER)

    assert pod.fetch(Overlay("m")) == 0


@pytest.mark.parametrize("encoding", BOMS.values())
def test_a_byte_order_mark_is_no_part_of_the_configuration(pod: Pod, encoding: str) -> None:
    pod.put("1/model.py")
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    pod.put("config.pbtxt", (mark + OWN).encode(encoding))

    assert pod.fetch(Overlay("m", max_batch_size=8, backend="python")) == 0
    assert pod.written() == OWN, "Triton can't parse the mark"


def test_a_broken_utf_16_file_is_reported(pod: Pod) -> None:
    pod.put("1/model.py")
    pod.put("config.pbtxt", b"\xff\xfeb")

    assert pod.refusal()[0] == ModelConfigError.reason


def test_empty_version_folders_beside_others_are_left_out(pod: Pod) -> None:
    pod.put("1/model.py")
    for name in ("2/.gitkeep", "3/_$folder$", "4/.DS_Store"):
        pod.put(name)
    (pod.source / "5").mkdir()

    assert pod.fetch(Overlay("m")) == 0
    assert sorted(p.name for p in (pod.repository / "m").iterdir()) == ["1", "config.pbtxt"]
    source = mounted_source.read(pod.source)
    assert (source.versions, source.left_out) == ((1,), ("2", "3", "4", "5"))


def test_folders_that_triton_takes_for_versions_are_left_out(pod: Pod, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("1/model.py", "1_notes/a", "2_old/model.py", "+3/a", "20230101.bak/a", "0.5/a", "4.txt"):
        pod.put(name)

    assert pod.fetch(Overlay("m")) == 0
    linked = sorted(p.name for p in (pod.repository / "m").iterdir())
    assert linked == ["0.5", "1", "1_notes", "4.txt", "config.pbtxt"], "Triton would load 20230101, and not 1"
    assert (
        "left out, as version folders without files or with other names: +3, 20230101.bak, 2_old"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("own", "written"),
    [
        (b"# Gr\xf6\xdfe\n", "# Gr??e\n"),
        (b"# \xd6\xd0\xce\xc4, in GBK\n", "# ????, in GBK\n"),
        (b"\xc2\xa0\xe3\x80\x80\xe2\x80\xa8\x1c\n", "    \n"),
        ("version_policy {\u00a0} # '\u00a0größer\n".encode(), "version_policy { } # '\u00a0größer\n"),
        ("default_model_filename: '#\u00a0' \n".encode(), "default_model_filename: '#\u00a0' \n"),
    ],
)
def test_a_configuration_has_only_spaces_and_bytes_for_triton(pod: Pod, own: bytes, written: str) -> None:
    pod.put("1/model.py")
    pod.put("1/#\u00a0")
    pod.put("config.pbtxt", own + OWN.encode())

    assert pod.fetch(Overlay("m")) == 0
    assert pod.written() == written + OWN


def test_a_requested_version_without_files_is_named(pod: Pod) -> None:
    pod.put("1/model.py")
    (pod.source / "2").mkdir()
    message = pod.refusal(Overlay("m", version_policy=VersionPolicy(specific=(2,))))[1]

    assert message.endswith("the source has no such version folder; it has 1, and without files 2")


def test_the_empty_version_folder_of_an_ensemble_stays(pod: Pod) -> None:
    (pod.source / "1").mkdir(parents=True)

    assert pod.fetch(Overlay("m")) == 0
    assert (pod.repository / "m" / "1").is_symlink()


def test_links_into_a_cache_in_the_volume_are_followed(pod: Pod) -> None:
    pod.put("blobs/9c", b"weights")
    snapshot = pod.source / "snapshots" / "5f" / "1"
    snapshot.mkdir(parents=True)
    (snapshot / "model.onnx").symlink_to("../../../blobs/9c")

    assert pod.fetch(Overlay("m"), "--path=snapshots/5f") == 0
    assert (pod.repository / "m" / "1" / "model.onnx").read_bytes() == b"weights"


def test_a_link_into_a_cache_that_was_not_copied_is_named(pod: Pod) -> None:
    (pod.source / "1").mkdir(parents=True)
    (pod.source / "1" / "model.onnx").symlink_to("../../../blobs/9c")

    message = pod.refusal()[1]
    assert "1/model.onnx in the model's source is a link without a target: ../../../blobs/9c isn't in" in message
    assert "cp --recursive --dereference" in message


def test_a_link_into_the_server_s_image_is_left_to_triton(pod: Pod) -> None:
    pod.put("1/model.py")
    (pod.source / "1" / "labels.txt").symlink_to("/opt/labels.txt")

    assert pod.fetch(Overlay("m")) == 0


def test_a_file_that_the_pod_s_user_can_not_read_is_named() -> None:
    with tempfile.TemporaryDirectory() as place, unprivileged(Path(place)):
        version = Path(place) / "1"
        version.mkdir()
        (version / "model.onnx").touch(mode=0o600)
        (version / "model.onnx").chmod(0o000)
        with pytest.raises(
            SourceError, match=r"1/model.onnx in the model's source can't be read by user \d+, .* chmod"
        ):
            mounted_source.read(Path(place))
