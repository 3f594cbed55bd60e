"""`halcyon batch` against an API server: progress to its end, the list, and what resumes a failed batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halcyon.main import main
from halcyon_cli.commands.inference.batch import row
from tests.unit.cli.commands.inference.test_batch import RUNNING, kubeconfig
from tests.unit.cli.stand_in_api import failure, serving

PATH = "/apis/serving.halcyon.dev/v1alpha1/namespaces/team/batchinferences"


def ended(kind: str, reason: str, message: str) -> dict[str, Any]:
    condition = {"type": kind, "status": "True", "reason": reason, "message": message}
    return RUNNING | {"status": RUNNING["status"] | {"conditions": [condition]}}


@pytest.fixture
def to(tmp_path: Path) -> Callable[[str], list[str]]:
    def write(url: str) -> list[str]:
        (tmp_path / "config").write_text(kubeconfig(url))
        return ["--kubeconfig", str(tmp_path / "config")]

    return write


def test_the_progress_is_followed_to_its_end(to: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as api:
        api.answers[f"{PATH}/night"] = (200, ended("Complete", "Completed", "all rows have a result"))
        assert main(["batch", "follow", "night", *to(api.url)]) == 0
        assert capsys.readouterr().out == "night: all rows have a result\n"
        api.answers[f"{PATH}/night"] = (200, ended("Failed", "InputChanged", "both digests"))
        assert main(["batch", "follow", "night", *to(api.url)]) == 1
        assert "night has failed (InputChanged): both digests" in capsys.readouterr().err


def test_batch_is_followed_beyond_a_failed_request(
    to: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = (200, ended("Complete", "Completed", "all rows have a result"))
    with serving() as api:
        api.answers[f"{PATH}/night"] = (200, RUNNING)
        later = iter([failure(500, "etcd has no leader"), failure(503, "try again"), complete])

        def next_answer(_: float) -> None:
            api.answers[f"{PATH}/night"] = next(later)

        monkeypatch.setattr("halcyon_cli.commands.inference.batch.time.sleep", next_answer)
        assert main(["batch", "follow", "night", *to(api.url)]) == 0
        assert capsys.readouterr().out == "night: all rows have a result\n"

        api.answers[f"{PATH}/night"] = (200, RUNNING)
        later = iter([failure(404, "not found")])
        assert main(["batch", "follow", "night", *to(api.url)]) == 2
        assert "no BatchInference night in namespace team" in capsys.readouterr().err


def test_a_list_needs_the_crd_and_a_name_a_batch(to: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as api:
        assert main(["batch", "list", *to(api.url)]) == 2
        assert "has no CRD BatchInference; upgrade Halcyon" in capsys.readouterr().err
        api.answers[PATH] = (200, {"items": [RUNNING], "metadata": {}})
        assert main(["batch", "list", *to(api.url)]) == 0
        assert capsys.readouterr().out.splitlines()[1].split() == row(RUNNING)
        api.answers[f"{PATH}/none"] = failure(404, "not found")
        assert main(["batch", "suspend", "none", *to(api.url)]) == 2
        assert "no BatchInference none in namespace team; list them with halcyon batch list" in capsys.readouterr().err


def test_a_failed_batch_is_suspended_before_it_goes_on(
    to: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as api:
        api.answers[f"{PATH}/night"] = (200, ended("Failed", "OutputFull", "no space"))

        def suspended(_: float) -> None:
            api.answers[f"{PATH}/night"] = (200, RUNNING)

        monkeypatch.setattr("halcyon_cli.commands.inference.batch.time.sleep", suspended)
        assert main(["batch", "resume", "night", *to(api.url)]) == 0
        assert [method for method, _ in api.requests] == ["GET", "PATCH", "GET", "GET", "PATCH"]
        assert "batchinference.serving.halcyon.dev/night resumed" in capsys.readouterr().out


@pytest.mark.parametrize("action", ["suspend", "resume"])
def test_complete_batches_are_neither_suspended_nor_resumed(
    action: str, to: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving() as api:
        api.answers[f"{PATH}/night"] = (200, ended("Complete", "Completed", "all rows have a result"))
        assert main(["batch", action, "night", *to(api.url)]) == 2
        assert f"night is complete, so there is nothing to {action}" in capsys.readouterr().err
        assert [method for method, _ in api.requests] == ["GET"]


def test_a_batch_that_stays_failed_is_left_with_advice(
    to: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    full = (200, ended("Failed", "OutputFull", "no space"))
    with serving() as api:
        api.answers[f"{PATH}/night"] = full
        later = iter([failure(503, "try again"), full, (200, RUNNING)])

        def next_answer(_: float) -> None:
            api.answers[f"{PATH}/night"] = next(later)

        monkeypatch.setattr("halcyon_cli.commands.inference.batch.time.sleep", next_answer)
        assert main(["batch", "resume", "night", *to(api.url)]) == 0

        api.answers[f"{PATH}/night"] = full
        monkeypatch.setattr("halcyon_cli.commands.inference.batch._RESUME_TIMEOUT_S", -1.0)
        capsys.readouterr()
        assert main(["batch", "resume", "night", *to(api.url)]) == 2
        message = capsys.readouterr().err
        assert "the operator has not deleted the failed Job of night" in message
        assert "night may be suspended now; repeat halcyon batch resume night" in message


def test_an_invalid_batch_is_corrected_and_not_resumed(to: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as api:
        api.answers[f"{PATH}/night"] = (200, ended("Failed", "Invalid", "spec.rowsPerRequest is 0"))
        assert main(["batch", "resume", "night", *to(api.url)]) == 2
        assert "is invalid: spec.rowsPerRequest is 0; correct it with kubectl edit" in capsys.readouterr().err
        assert [method for method, _ in api.requests] == ["GET"]


def test_a_new_batch_needs_the_crd_and_an_empty_list_is_named(to: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as api:
        api.answers[PATH.replace("batchinferences", "modeldeployments/digits")] = (
            200,
            {"metadata": {"name": "digits"}},
        )
        new = ["batch", "digits", "--input", "pvc://s/a.npz", "--output", "pvc://s/o"]
        assert main([*new, *to(api.url)]) == 2
        assert "has no CRD BatchInference; upgrade Halcyon" in capsys.readouterr().err
        api.answers[PATH] = (200, {"items": [], "metadata": {}})
        assert main(["batch", "list", *to(api.url)]) == 0
        assert "no BatchInferences in namespace team; for a new one: " in capsys.readouterr().out
