"""`halcyon batch`: from options to a BatchInference, and what a list and the progress show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from halcyon.main import main
from halcyon_cli.commands.inference.batch import row
from halcyon_cli.commands.inference.batch_manifest import manifest
from halcyon_cli.errors import InputError

OPTIONS: dict[str, Any] = {
    "source": "pvc://sets/2026/rows.npz", "place": "pvc://sets/out/", "name": None, "input_format": None, "output_format": None,
    "hooks": None, "prepare": None, "finish": None, "rows": None, "max_failures": None, "deadline": None, "max_replicas": None,
    "wake": False, "gentle": False, "workers": None, "credentials": None, "endpoint": None, "region": None,
}  # fmt: skip
RUNNING: dict[str, Any] = {
    "apiVersion": "serving.halcyon.dev/v1alpha1",
    "kind": "BatchInference",
    "metadata": {"name": "night", "namespace": "team", "uid": "u"},
    "spec": {"modelDeployment": "digits"},
    "status": {
        "rows": {"total": 1000, "done": 400, "failed": 5},
        "progress": "405/1000",
        "rate": "50",
        "eta": "2026-11-24T16:10:00Z",
        "conditions": [
            {"type": "Complete", "status": "False", "reason": "Running", "message": "the runner is processing rows"}
        ],
    },
}


def kubeconfig(url: str) -> str:
    """Return a kubeconfig for this API server and the namespace team."""
    document = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "users": [{"name": "u", "user": {}}],
        "current-context": "c",
    }
    return yaml.safe_dump(document)


def batch_manifest(**others: Any) -> dict[str, Any]:
    return dict(manifest("digits", "team", OPTIONS | others, now=1_764_000_000.0))


def test_options_become_the_fields_of_a_batch_inference() -> None:
    document = batch_manifest(
        name="night", output_format="Jsonl", hooks="h", finish="hooks.py:finish", rows=8, max_failures=0, deadline="6h",
        max_replicas=4, wake=True, gentle=True, workers=2,
    )  # fmt: skip
    assert document["metadata"] == {"name": "night", "namespace": "team"}
    assert document["spec"] == {
        "modelDeployment": "digits",
        "input": {"persistentVolumeClaim": {"claimName": "sets", "path": "2026/rows.npz"}},
        "output": {"persistentVolumeClaim": {"claimName": "sets", "path": "out"}, "format": "Jsonl"},
        "hooks": {"configMap": "h", "finish": "hooks.py:finish"},
        "rowsPerRequest": 8, "maxFailures": 0, "deadline": "2025-11-24T22:00:00Z", "maxReplicas": 4, "atZero": "Wake",
        "gentle": True, "workers": 2,
    }  # fmt: skip
    assert set(batch_manifest()["spec"]) == {"modelDeployment", "input", "output"}


def test_the_options_for_buckets_apply_to_each_place_in_one() -> None:
    bucket = {"credentials": "keys", "endpoint": "https://minio:9000", "region": "eu-1"}
    assert batch_manifest(source="s3://sets/rows.npz", place="gs://out/night/", **bucket)["spec"] == {
        "modelDeployment": "digits",
        "input": {"uri": "s3://sets/rows.npz", "credentials": {"secretName": "keys"}, "endpoint": "https://minio:9000", "region": "eu-1"},
        "output": {"uri": "gs://out/night", "credentials": {"secretName": "keys"}, "endpoint": "https://minio:9000"},
    }  # fmt: skip
    assert batch_manifest(place="s3://sets/out", **bucket)["spec"]["input"] == {
        "persistentVolumeClaim": {"claimName": "sets", "path": "2026/rows.npz"}
    }


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"source": None}, "--input is missing; for example --input pvc://sets/2026/images.npz"),
        ({"place": "/data"}, "--output is /data; it must be pvc://CLAIM/PATH"),
        ({"source": "pvc://sets/../x"}, "spec.input.persistentVolumeClaim.path"),
        ({"credentials": "keys"}, "--credentials is only for s3://, gs://, az://, and neither"),
        ({"source": "gs://sets/rows.npz", "region": "eu"}, "--region is only for s3://, and neither"),
        ({"source": "az://sets/rows.npz"}, "spec.input.uri is az://sets/rows.npz but endpoint is not set"),
        ({"prepare": "hooks.py:prepare"}, "--prepare and --finish need --hooks"),
        ({"deadline": "soon"}, "--deadline is soon, and neither a time as 2026-12-01T06:00:00Z nor a duration"),
        (
            {"deadline": "2026-13-01T06:00:00Z"},
            "--deadline is 2026-13-01T06:00:00Z, and neither a time as 2026-12-01T06:00:00Z",
        ),
        ({"hooks": "h", "prepare": "no"}, "spec.hooks.prepare"),
        ({"name": "Night"}, "the name of the batch is 'Night' (5 characters); it must match"),
    ],
)
def test_a_wrong_option_is_refused_with_an_example(others: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        batch_manifest(**others)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("option", "field"),
    [
        ("2026-12-01 06:00:00Z", "2026-12-01T06:00:00Z"),
        ("2026-12-01T08:00+02:00", "2026-12-01T06:00:00Z"),
        ("2026-12-01t06:00:00z", "2026-12-01t06:00:00z"),
        ("2026-12-01T08:00:00.5+02:00", "2026-12-01T08:00:00.5+02:00"),
    ],
)
def test_a_deadline_has_a_form_that_the_api_server_accepts(option: str, field: str) -> None:
    assert batch_manifest(deadline=option)["spec"]["deadline"] == field


def test_a_row_of_the_list_has_what_kubectl_shows() -> None:
    assert row(RUNNING) == ["night", "digits", "Running", "405/1000", "5", "50", "2026-11-24T16:10:00Z"]
    assert row({"metadata": {"name": "new"}}) == ["new", "-", "Pending", "-", "-", "-", "-"]


def test_yaml_is_printed_and_nothing_is_created(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config").write_text(kubeconfig("http://127.0.0.1:1"))
    arguments = ["--input", "pvc://s/a.npz", "--output", "pvc://s/o", "-o", "yaml"]
    assert main(["batch", "digits", *arguments, "--kubeconfig", str(tmp_path / "config")]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["metadata"] == {"name": "digits-batch", "namespace": "team"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digits", "-A", "--input", "pvc://s/a", "--output", "pvc://s/b"], "-A is for halcyon batch list"),
        (["follow", "night", "-A"], "-A is for halcyon batch list; name the namespace with -n"),
        (["resume", "night", "--max-failures", "5"], "--max-failures is for a new batch, and resume makes none"),
        (["follow", "night", "-o", "json"], "-o prints an object, and follow the progress; leave it out"),
        (["list", "--gentle"], "--gentle is for a new batch, and list makes none"),
        (["follow"], "it needs a model, or list, or one of follow"),
    ],
)
def test_options_without_an_effect_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["batch", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_places_that_are_missing_are_reported_without_a_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["batch", "digits", "--kubeconfig", str(tmp_path / "config")]) == 2
    assert capsys.readouterr().err.startswith("halcyon batch: --input is missing; for example --input pvc://")


def test_the_name_of_a_model_can_be_too_long_for_a_batch() -> None:
    with pytest.raises(InputError, match=r"\(53 characters\); it must match .*; choose one, for example --name night"):
        manifest("m" * 47, "team", OPTIONS, now=0.0)
