"""`halcyon get NAME` and `halcyon status NAME` while pods download the model: the bytes from the fetchers' logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from halcyon.api.documents.download_progress import DownloadProgress
from halcyon.main import main
from halcyon_cli.kube.client import Cluster, Target
from halcyon_cli.kube.downloads import MAX_PODS, Downloads
from tests.integration.cli.test_explain_command import MODELS, Desk
from tests.unit.cli.inventories import pod
from tests.unit.cli.stand_in_api import Api, failure, serving

PODS = "/api/v1/namespaces/team/pods"
FETCHING = [{"name": "fetch", "state": {"running": {"startedAt": "2026-11-20T00:00:00Z"}}, "restartCount": 0}]
HALF = DownloadProgress(4 * 2**30, 8 * 2**30)
LOG = f"begin\n{DownloadProgress(0, HALF.total).line('s3://m')}\n{HALF.line('s3://m')}\n"


def fetching(name: str) -> Any:
    fetching_pod = pod(name, key="key", init=FETCHING, containers=[])
    fetching_pod["metadata"]["labels"] = {
        key: value.replace("digits", "m") for key, value in fetching_pod["metadata"]["labels"].items()
    }
    return fetching_pod


def desk_with(tmp_path: Path, capsys: pytest.CaptureFixture[str], api: Api, *pods: Any) -> Desk:
    desk = Desk(tmp_path, capsys, api)
    desk.holds("m")
    model = api.answers[MODELS.format("team") + "/m"][1]
    model["metadata"]["generation"] = 1
    model["status"] |= {"observedGeneration": 1, "pods": {"total": len(pods), "ready": 0, "fetching": len(pods)}}
    model["status"] |= {"rollout": {"phase": "Progressing", "message": "0 of 1 pods"}, "conditions": []}
    model["status"]["revision"] = {"target": "m-key"}
    api.answers[PODS] = (200, {"items": list(pods)})
    return desk


def test_get_and_status_show_the_bytes_of_a_download(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as api:
        desk = desk_with(tmp_path, capsys, api, fetching("m-a-1"))
        api.answers[f"{PODS}/m-a-1/log"] = (200, LOG)
        config = ["--kubeconfig", str(desk.kubeconfig)]

        assert main(["get", "m", *config]) == 0
        assert "on gpu-1, 4.0 of 8.0 GiB" in " ".join(capsys.readouterr().out.split())
        assert main(["status", "m", *config]) == 1
        assert capsys.readouterr().out == "waiting for the rollout of m: 0 of 1 pods; downloaded 4.0 of 8.0 GiB\n"


@pytest.mark.parametrize("answer", [failure(403, "no"), (200, "nothing yet\n"), failure(404, "no container")])
def test_bytes_that_are_unknown_are_not_shown_as_zero(
    answer: tuple[int, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving() as api:
        desk = desk_with(tmp_path, capsys, api, fetching("m-a-1"))
        api.answers[f"{PODS}/m-a-1/log"] = answer
        config = ["--kubeconfig", str(desk.kubeconfig)]

        assert main(["get", "m", *config]) == 0
        shown = capsys.readouterr().out
        assert "fetching" in shown
        assert "GiB" not in shown
        assert main(["status", "m", *config]) == 1
        assert capsys.readouterr().out == "waiting for the rollout of m: 0 of 1 pods\n"


def test_logs_are_read_rarely_of_few_pods_and_only_while_they_fetch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving() as api:
        names = [f"m-a-{number:02}" for number in range(MAX_PODS + 2)]
        pods = [*map(fetching, names), pod("m-a-ready", key="key", ready=True)]
        desk = desk_with(tmp_path, capsys, api, *pods)
        api.answers |= {f"{PODS}/{obj['metadata']['name']}/log": (200, LOG) for obj in pods}
        now = [0.0]
        downloads = Downloads(Cluster(Target("get", desk.kubeconfig)), lambda: now[0])

        def reads() -> int:
            return sum("/log" in path for _, path in api.requests)

        assert downloads.progress(pods) == dict.fromkeys(names[:MAX_PODS], HALF)
        assert reads() == MAX_PODS
        now[0] = 9.9
        assert downloads.progress(pods[:1]) == {names[0]: HALF}
        assert reads() == MAX_PODS
        now[0] = 10.0
        downloads.progress(pods[:1])
        assert reads() == MAX_PODS + 1
