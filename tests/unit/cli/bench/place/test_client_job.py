"""The Job of a measurement's client: its lease, its pod, and the files that it reads."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import kubernetes_validate
import pytest

from halcyon_cli.bench.options.inputs import InputOptions
from halcyon_cli.bench.options.load import LoadOptions
from halcyon_cli.bench.place import client_job
from halcyon_cli.bench.place.client_job import ClientSettings
from halcyon_cli.errors import InputError

SETTINGS = ClientSettings(
    model="digits",
    namespace="team",
    image="r.example.com/halcyon-bench:dev",
    arguments=("bench", "--url", "http://digits-bench:8000", "--to-log"),
    measured="digits-bench",
    api_keys="keys",
    files={"000-x.npy": b"\x01"},
    priority_class="halcyon-bench",
    pull_secrets=("regcred",),
)
OWNER = {"metadata": {"name": "digits-bench", "uid": "j-1"}}


def test_objects_are_valid() -> None:
    for obj in (
        client_job.job(SETTINGS),
        client_job.config_map(SETTINGS, OWNER),
        client_job.network_policy(SETTINGS, OWNER),
    ):
        kubernetes_validate.validate(obj, "1.31", strict=True)


def test_pod_is_restricted_and_has_no_token() -> None:
    spec = client_job.pod(SETTINGS)
    assert spec["automountServiceAccountToken"] is False
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert spec["securityContext"]["runAsNonRoot"] is True
    (container,) = spec["containers"]
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert not security["allowPrivilegeEscalation"]
    assert security["readOnlyRootFilesystem"]
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {
        "/tmp",
        "/etc/halcyon/files",
        "/etc/halcyon/api-keys",
    }


@pytest.mark.parametrize(("near", "key"), [("node", "kubernetes.io/hostname"), ("zone", "topology.kubernetes.io/zone")])
def test_client_prefers_the_place_of_the_measured_servers(near: str, key: str) -> None:
    affinity = client_job.pod(replace(SETTINGS, near=near))["affinity"]["podAffinity"]
    (term,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"]["topologyKey"] == key
    assert (
        term["podAffinityTerm"]["labelSelector"]["matchLabels"]["serving.halcyon.dev/model-deployment"]
        == "digits-bench"
    )
    assert "affinity" not in client_job.pod(replace(SETTINGS, near="any"))


def test_job_of_a_killed_command_is_gone_within_five_minutes() -> None:
    spec = client_job.job(SETTINGS)["spec"]
    assert spec["parallelism"] == 0
    assert spec["activeDeadlineSeconds"] + spec["ttlSecondsAfterFinished"] + 60 <= 300
    for since in (0.0, 20.0, 900.0):
        assert client_job.lease_s(since, 5000) - since + spec["ttlSecondsAfterFinished"] + 60 <= 300


def test_lease_ends_with_the_longest_measurement() -> None:
    assert client_job.lease_s(1000, 1100) == 1100


def test_files_travel_in_a_config_map(tmp_path: Path) -> None:
    (tmp_path / "x y.npy").write_bytes(b"\x01\x02")
    (tmp_path / "hook.py").write_text("def prepare(n): ...\n")
    inputs = InputOptions(inputs=(f"pixels={tmp_path}/x y.npy",), prepare=f"{tmp_path}/hook.py:prepare")
    _, moved, files = client_job.packed(LoadOptions(), inputs)
    assert moved.inputs == ("pixels=/etc/halcyon/files/000-x_y.npy",)
    assert moved.prepare == "/etc/halcyon/files/001-hook.py:prepare"
    config_map = client_job.config_map(replace(SETTINGS, files=files), OWNER)
    assert base64.b64decode(config_map["binaryData"]["000-x_y.npy"]) == b"\x01\x02"


def test_folder_of_inputs_stays_a_folder(tmp_path: Path) -> None:
    for name in ("a.npy", "b.npy", ".hidden"):
        (tmp_path / name).write_bytes(b"\x01")
    _, moved, files = client_job.packed(LoadOptions(), InputOptions(inputs=(f"x={tmp_path}",)))
    assert moved.inputs == ("x=/etc/halcyon/files",)
    assert sorted(files) == ["000-a.npy", "001-b.npy"]
    with pytest.raises(InputError, match="together with --trace"):
        client_job.packed(LoadOptions(), InputOptions(inputs=(str(tmp_path),), expect=f"{tmp_path}/a.npy"))


def test_files_of_a_volume_stay_where_they_are() -> None:
    load, inputs, files = client_job.packed(
        LoadOptions(trace=Path("/data/t.csv")), InputOptions(inputs=("x=/data/all",))
    )
    assert (load.trace, inputs.inputs, files) == (Path("/data/t.csv"), ("x=/data/all",), {})


def test_too_many_bytes_name_the_limit_and_the_volume(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(b"\0" * (701 * 1024))
    with pytest.raises(InputError, match=r"700 KiB fit.*--volume CLAIM --input /data/FILE"):
        client_job.packed(LoadOptions(), InputOptions(inputs=(f"{tmp_path}/x.npy",)))


def test_empty_folder_of_inputs_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".hidden").write_bytes(b"1")
    with pytest.raises(InputError, match="an empty folder; it needs files"):
        client_job.packed(LoadOptions(), InputOptions(inputs=(f"x={tmp_path}",)))
