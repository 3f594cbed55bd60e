"""The process on real folders: what it makes, what it refuses, and what it leaves in the termination log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from halcyon.api.documents.model_overlay import DynamicBatching, Overlay, VersionPolicy
from halcyon.api.sequence_batching import REPORT
from halcyon.fetch.errors import MAX_BYTES, SourceError
from halcyon.fetch.main import main
from halcyon.fetch.mounted_source import ModelFolder
from halcyon.fetch.repository import STUB, assemble
from halcyon.model_config import config_pbtxt

OWN = 'name: "m"\nbackend: "python" # a comment\nmax_batch_size: 8\n'


@dataclass(frozen=True)
class Pod:
    """The mounts of an init container."""

    root: Path

    @property
    def source(self) -> Path:
        return self.root / "source"

    @property
    def repository(self) -> Path:
        return self.root / "models"

    @property
    def termination_log(self) -> Path:
        return self.root / "termination-log"

    def put(self, path: str, content: str | bytes = "") -> None:
        file = self.source / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)

    def project(self, files: dict[str, str]) -> None:
        """As the kubelet lays out a ConfigMap with `items`."""
        for path, content in files.items():
            self.put(f"..2026_11_21/{path}", content)
        (self.source / "..data").symlink_to("..2026_11_21")
        for top in {path.split("/")[0] for path in files}:
            (self.source / top).symlink_to(f"..data/{top}")

    def fetch(self, overlay: Overlay | str = Overlay("m"), *more: str) -> int:  # noqa: B008  # a frozen value
        document = self.root / "overlay.json"
        document.write_text(overlay if isinstance(overlay, str) else overlay.to_json())
        arguments = [f"--source={self.source}", f"--overlay={document}", f"--repository={self.repository}"]
        return main([*arguments, f"--termination-log={self.termination_log}", *more])

    def refusal(self, overlay: Overlay | str = Overlay("m"), *more: str) -> tuple[str, str]:  # noqa: B008
        assert self.fetch(overlay, *more) == 1
        text = self.termination_log.read_text()
        assert len(text.encode()) <= MAX_BYTES
        report = json.loads(text)
        assert set(report) == {"reason", "message"}
        return report["reason"], report["message"]

    def written(self, name: str = "m") -> str:
        return (self.repository / name / "config.pbtxt").read_text()


@contextmanager
def unprivileged(folder: Path) -> Iterator[None]:
    """Root can read everything; a pod's user can't. The folder becomes that user's."""
    user = os.geteuid()
    if user:
        yield
        return
    os.chown(folder, 65534, -1)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    (tmp_path / "source").mkdir()
    return Pod(tmp_path)


def test_a_projected_config_map_becomes_links_and_a_merged_configuration(
    pod: Pod, capsys: pytest.CaptureFixture[str]
) -> None:
    pod.project({"config.pbtxt": OWN, "1/model.py": "code", "2/model.py": "newer", "labels.txt": "a"})
    assert pod.fetch(Overlay("m", dynamic_batching=DynamicBatching(max_queue_delay_us=2000))) == 0
    folder = pod.repository / "m"
    assert names_in(folder) == ["1", "2", "config.pbtxt", "labels.txt"]
    assert (folder / "1").readlink() == pod.source / "1"
    assert (folder / "2" / "model.py").read_text() == "newer"
    assert not (folder / "config.pbtxt").is_symlink()
    merged = config_pbtxt.parse(pod.written().encode())
    assert (merged.max_batch_size, merged.dynamic_batching.max_queue_delay_microseconds) == (8, 2000)
    assert not pod.termination_log.exists()
    assert capsys.readouterr().out == (
        f"{folder}: config.pbtxt merged (dynamic_batching); links into {pod.source}: 3; versions: 1, 2\n"
    )


def test_a_models_own_stub_is_copied_so_that_triton_can_run_it(pod: Pod, capsys: pytest.CaptureFixture[str]) -> None:
    pod.project({"config.pbtxt": OWN, "1/model.py": "code", STUB: "#!/bin/bash", "labels.txt": "a"})
    assert pod.fetch() == 0
    folder = pod.repository / "m"
    assert [name for name in names_in(folder) if (folder / name).is_symlink()] == ["1", "labels.txt"]
    assert (folder / STUB).read_text() == "#!/bin/bash"
    assert (folder / STUB).stat().st_mode & 0o777 == 0o755
    # As Triton does, where the stub doesn't end as it should when it is tried.
    (folder / STUB).chmod(0o100)
    assert (pod.source / STUB).stat().st_mode & 0o777 == 0o644
    assert capsys.readouterr().out.endswith(f"links into {pod.source}: 2; versions: 1; {STUB} is the model's own\n")
    assert pod.fetch() == 0
    assert (folder / STUB).stat().st_mode & 0o777 == 0o755


def test_a_stub_that_can_not_be_one_is_refused_by_its_size(pod: Pod) -> None:
    pod.put("1/model.py")
    pod.put(STUB)
    os.truncate(pod.source / STUB, 1 << 40)
    reason, message = pod.refusal()
    assert reason == "ModelSourceNotFound"
    assert (
        message == f"{STUB} in the model's source has 1099511627776 bytes; the limit is 268435456. Is it another file?"
    )


def test_an_unreadable_stub_is_refused_with_the_mode_to_give() -> None:
    with tempfile.TemporaryDirectory() as place, unprivileged(Path(place)):
        source = Path(place) / "source"
        source.mkdir()
        (source / STUB).touch(mode=0o000)
        with pytest.raises(
            SourceError, match=r"stub in the model's source can't be read: .*, so give it for example the mode 0755"
        ):
            assemble(Path(place) / "models", "m", ModelFolder(source, (STUB,), (1,), None), b"")


def test_an_overlay_that_changes_nothing_leaves_the_file_with_its_comments(pod: Pod) -> None:
    pod.put("1/model.py")
    pod.put("config.pbtxt", OWN)
    assert pod.fetch(Overlay("m", max_batch_size=8, backend="python")) == 0
    assert pod.written() == OWN


def test_a_folder_inside_a_claim_is_found(pod: Pod) -> None:
    pod.put("vision/digits/1/model.onnx")
    pod.put("lost+found/x")
    assert pod.fetch(Overlay("m"), "--path=vision/digits") == 0
    assert (pod.repository / "m" / "1").readlink() == pod.source / "vision/digits/1"


def test_a_claims_root_is_a_model_without_the_file_systems_own_files(pod: Pod) -> None:
    pod.put("1/model.onnx")
    pod.put("lost+found/x")
    pod.put(".git/x")
    assert pod.fetch() == 0
    assert names_in(pod.repository / "m") == ["1", "config.pbtxt"]


def test_a_model_without_a_configuration_gets_a_minimal_one(pod: Pod, capsys: pytest.CaptureFixture[str]) -> None:
    pod.put("1/model.onnx")
    assert pod.fetch(Overlay("m", max_batch_size=16, dynamic_batching=DynamicBatching())) == 0
    assert pod.written() == 'name: "m"\nmax_batch_size: 16\ndynamic_batching {\n}\n'
    assert "Triton completes the rest" in capsys.readouterr().out


def test_a_second_run_replaces_what_the_first_left(pod: Pod) -> None:
    pod.put("1/model.py")
    assert pod.fetch(Overlay("m", max_batch_size=4)) == 0
    pod.put("2/model.py")
    (pod.repository / ".halcyon-unfinished").mkdir()
    assert pod.fetch(Overlay("m", max_batch_size=5)) == 0
    assert "max_batch_size: 5" in pod.written()
    assert names_in(pod.repository) == ["m"]


def test_a_newer_tritons_file_passes_through_if_nothing_must_change(pod: Pod) -> None:
    pod.put("1/model.py")
    for name in ("", 'name: "m"\n'):
        pod.put("config.pbtxt", name + "brand_new: 1\n")
        assert pod.fetch() == 0
        assert pod.written() == name + "brand_new: 1\n"


@pytest.mark.parametrize("overlay", [Overlay("m", max_batch_size=4), Overlay("n")])
def test_a_newer_tritons_file_is_refused_by_name_if_it_must_change(pod: Pod, overlay: Overlay) -> None:
    pod.put("1/model.py")
    pod.put("config.pbtxt", 'name: "m"\nbrand_new: 1\n')
    reason, message = pod.refusal(overlay)
    assert reason == "ModelConfigInvalid"
    assert "line 2, column 1: `brand_new: 1`" in message
    assert 'no field named "brand_new"' in message


def test_a_broken_file_is_quoted_in_the_termination_log(pod: Pod, capsys: pytest.CaptureFixture[str]) -> None:
    pod.put("1/model.py")
    pod.put("config.pbtxt", 'name: "m"\nmax_batch_size: sixteen\n')
    reason, message = pod.refusal()
    assert reason == "ModelConfigInvalid"
    assert "line 2, column 17: `max_batch_size: sixteen`" in message
    assert capsys.readouterr().err.strip() == pod.termination_log.read_text()
    assert not (pod.repository / "m").exists()


def test_a_conflict_is_reported_as_one(pod: Pod) -> None:
    pod.put("1/model.py")
    pod.put("config.pbtxt", OWN)
    reason, message = pod.refusal(Overlay("m", dynamic_batching=DynamicBatching(preferred_batch_sizes=(9,))))
    assert reason == "ModelConfigConflict"
    assert "preferred_batch_size 9 is above max_batch_size 8" in message


def test_a_version_policy_without_a_version_of_the_source_is_refused(pod: Pod) -> None:
    pod.put("config.pbtxt", 'backend: "python" version_policy { specific { versions: [7, 8] } }')
    pod.put("1/model.py")
    reason, message = pod.refusal(Overlay("m"))
    assert reason == "ModelSourceNotFound"
    assert "config.pbtxt of m has only 7, 8, and the source has the version folders 1;" in message


def test_a_version_that_is_not_there_is_named_with_those_that_are(pod: Pod) -> None:
    pod.put("1/model.py")
    pod.put("3/model.py")
    reason, message = pod.refusal(Overlay("m", version_policy=VersionPolicy(specific=(1, 2))))
    assert reason == "ModelSourceNotFound"
    assert "has 2, but the source has no such version folder; it has 1, 3" in message


@pytest.mark.parametrize(
    ("files", "arguments", "part"),
    [
        ([], [], "the model's source is empty"),
        (["lost+found/x", ".hidden/x"], [], "the model's source is empty"),
        (["model.onnx"], [], "no version folder in its top folder, which has model.onnx. A model's folder contains"),
        (["digits/1/x", "config.pbtxt"], [], "Folder digits has one: set it as the path of the source"),
        (
            ["a/digits/1/x", "a/b", "a/faces/2/x"],
            ["--path=a"],
            "no version folder in folder a, which has b, digits, faces. Folders digits, faces have one: set one of them as the path",
        ),
        (["01/x"], [], "Triton ignores the version 01; name it 1"),
        (["1"], [], "no version folder in its top folder, which has 1."),
        (["a/1/x"], ["--path=b"], "folder b doesn't exist in the model's source. the volume has a"),
        (["a/b/1/x"], ["--path=a/c/d"], "folder a has b"),
        (["a/1/x", "f"], ["--path=f"], "f in the model's source is not a folder"),
        (["1/x"], ["--path=../x"], "without empty, '.' or '..' segments"),
        (["1/x"], ["--path=a/../../x"], "without empty, '.' or '..' segments"),
        (["1/x"], ["--path=/etc"], "must be a relative path"),
        (["1/x"], ["--path="], "must be a relative path"),
    ],
)
def test_a_source_without_the_model_is_reported_with_its_contents(
    pod: Pod, files: list[str], arguments: list[str], part: str
) -> None:
    for file in files:
        pod.put(file)
    reason, message = pod.refusal(Overlay("m"), *arguments)
    assert reason == "ModelSourceNotFound"
    assert part in message


@pytest.mark.parametrize(
    ("name", "target", "part"),
    [
        ("1", "1", "1 in the model's source is a cycle of links"),
        ("a", "b", "a in the model's source is a cycle of links"),
        ("1", "gone", "1 in the model's source is a link without a target"),
        ("1", "../outside", "a link that leads out of the volume"),
        ("config.pbtxt", "../outside/secret", "config.pbtxt in the model's source is a link that leads out"),
        ("labels", "/etc/passwd", "a link that leads out of the volume"),
    ],
)
def test_a_link_that_can_not_be_followed_is_refused(pod: Pod, name: str, target: str, part: str) -> None:
    (pod.root / "outside").mkdir()
    (pod.root / "outside" / "secret").write_text("password")
    pod.put("2/model.py")
    (pod.source / name).symlink_to(target)
    if name == "a":
        (pod.source / "b").symlink_to("a")
    reason, message = pod.refusal()
    assert reason == "ModelSourceNotFound"
    assert part in message
    assert "password" not in message


def test_a_path_through_a_link_out_of_the_volume_is_refused(pod: Pod) -> None:
    (pod.root / "outside" / "1").mkdir(parents=True)
    (pod.source / "way").symlink_to("../outside")
    assert pod.refusal(Overlay("m"), "--path=way")[0] == "ModelSourceNotFound"


def test_a_source_that_is_not_mounted_is_reported(pod: Pod) -> None:
    pod.source.rmdir()
    assert pod.refusal() == ("ModelSourceNotFound", f"the model's source is not mounted: {pod.source} is not a folder")


def test_a_configuration_that_is_too_large_is_refused_unread(pod: Pod) -> None:
    pod.put("1/model.py")
    pod.put("config.pbtxt")
    os.truncate(pod.source / "config.pbtxt", 1 << 40)
    reason, message = pod.refusal()
    assert reason == "ModelConfigInvalid"
    assert "1099511627776 bytes; the limit is 1048576" in message


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_a_configuration_that_is_no_file_is_refused(pod: Pod, kind: str) -> None:
    pod.put("1/model.py")
    path = pod.source / "config.pbtxt"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    assert pod.refusal() == ("ModelConfigInvalid", "config.pbtxt is not a file; it must be a text file")


@pytest.mark.parametrize("name", ["../x", "..", "a/b", "/x", ""])
def test_a_model_name_can_not_lead_out_of_the_repository(pod: Pod, name: str) -> None:
    pod.put("1/model.py")
    before = sorted(str(path) for path in pod.root.rglob("*"))
    reason, message = pod.refusal(json.dumps({"version": 1, "model_name": name}))
    assert reason == "OverlayInvalid"
    assert "overlay.model_name" in message
    after = sorted(str(path) for path in pod.root.rglob("*") if path.name not in {"overlay.json", "termination-log"})
    assert after == before


def test_a_missing_overlay_is_reported(pod: Pod) -> None:
    log = f"--termination-log={pod.termination_log}"
    assert main(["--source=/", "--overlay=/no/overlay", "--repository=/no", log]) == 1
    assert json.loads(pod.termination_log.read_text())["reason"] == "OverlayInvalid"


@pytest.mark.parametrize("kind", ["link", "file", "folder"])
def test_foreign_files_in_the_repository_are_left_alone(pod: Pod, kind: str) -> None:
    pod.put("1/model.py")
    precious = pod.root / "precious"
    (precious / "deep").mkdir(parents=True)
    (precious / "deep" / "file").write_text("kept")
    pod.repository.mkdir()
    target = pod.repository / "m"
    if kind == "link":
        target.symlink_to(precious)
    elif kind == "file":
        target.write_text("kept")
    else:
        (target / "1").mkdir(parents=True)
    reason, message = pod.refusal()
    assert reason == "FetchFailed"
    assert "was not created by halcyon fetch" in message
    assert (precious / "deep" / "file").read_text() == "kept"
    assert os.path.lexists(target)


def test_a_repository_inside_the_source_is_refused(pod: Pod) -> None:
    pod.put("1/model.py")
    reason, message = pod.refusal(Overlay("m"), f"--repository={pod.source / 'models'}")
    assert reason == "FetchFailed"
    assert "overlap" in message


def test_a_repository_that_cannot_be_created_is_reported(pod: Pod) -> None:
    pod.put("1/model.py")
    pod.repository.write_text("")
    reason, message = pod.refusal()
    assert reason == "FetchFailed"
    assert str(pod.repository) in message


def test_wrong_arguments_are_reported_like_any_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--sauce=/x"]) == 1
    report = json.loads(capsys.readouterr().err.splitlines()[0])
    assert report["reason"] == "FetchFailed"
    assert "required: --source" in report["message"]


def test_the_process_loads_neither_grpc_nor_numpy_nor_pydantic(pod: Pod) -> None:
    pod.put("1/model.py")
    pod.put("config.pbtxt", OWN)
    (pod.root / "overlay.json").write_text(Overlay("m", max_batch_size=4).to_json())
    heavy = ("grpc", "numpy", "pydantic", "yaml", "aiohttp", "kubernetes", "asyncio", "tritonclient.grpc")
    code = f"import sys\nfrom halcyon.fetch.main import main\ncode = main(sys.argv[1:])\nprint([m for m in {heavy} if m in sys.modules])\nsys.exit(code)"
    arguments = [f"--source={pod.source}", f"--overlay={pod.root}/overlay.json", f"--repository={pod.repository}"]
    environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
    shown = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True, env=environment
    )
    assert shown.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(("own", "left"), [(OWN, None), (OWN + "sequence_batching { direct {} }\n", REPORT)])
def test_a_stateful_model_is_reported(pod: Pod, own: str, left: str | None) -> None:
    pod.put("config.pbtxt", own)
    pod.put("1/model.py", "")
    assert pod.fetch() == 0
    assert (pod.termination_log.read_text() if pod.termination_log.exists() else None) == left
