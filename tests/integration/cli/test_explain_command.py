"""`halcyon explain`, from its arguments and a kubeconfig to what it prints."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from halcyon.main import main
from tests.unit.cli.explained_models import SITUATIONS
from tests.unit.cli.stand_in_api import Api, failure, serving

MODELS = "/apis/serving.halcyon.dev/v1alpha1/namespaces/{}/modeldeployments"


def kubeconfig(file: Path, server: str, namespace: str | None = "team") -> Path:
    context: dict[str, Any] = {"cluster": "c", "user": "u"} | ({"namespace": namespace} if namespace else {})
    file.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "x",
                "contexts": [{"name": "x", "context": context}],
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    return file


class Desk:
    """A cluster, a kubeconfig of it, and the command."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], api: Api) -> None:
        self.folder, self.api, self._capsys = folder, api, capsys
        self.kubeconfig = kubeconfig(folder / "config", api.url)

    def holds(self, *names: str, namespace: str = "team", situation: str = "rising") -> None:
        """Let the namespace have models of these names."""
        path = MODELS.format(namespace)
        objects = {name: self._named(name, situation) for name in names}
        self.api.answers[path] = (200, {"kind": "ModelDeploymentList", "items": list(objects.values())})
        self.api.answers |= {f"{path}/{name}": (200, obj) for name, obj in objects.items()}

    def run(self, *arguments: str, config: str | None = None) -> tuple[int, str, str]:
        """(exit status, stdout, stderr)."""
        status = main(["explain", *arguments, "--kubeconfig", config or str(self.kubeconfig)])
        captured = self._capsys.readouterr()
        return status, captured.out, captured.err

    def wrong(self, *arguments: str, config: str | None = None) -> str:
        """The one line on stderr of a run that has nothing to explain."""
        status, out, err = self.run(*arguments, config=config)
        assert (status, out) == (2, "")
        assert err.startswith("halcyon explain: ")
        assert err.count("\n") == 1
        return err.removeprefix("halcyon explain: ").rstrip()

    @staticmethod
    def _named(name: str, situation: str) -> dict[str, Any]:
        resource = SITUATIONS[situation]().resource()
        resource["metadata"]["name"] = name
        return resource


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Desk]:
    with serving() as api:
        yield Desk(tmp_path, capsys, api)


def test_a_model_is_explained_in_the_namespace_of_the_context(desk: Desk) -> None:
    desk.holds("digits")
    status, out, err = desk.run("digits")

    assert (status, err) == (0, "")
    assert out.startswith("team/digits: 6 replicas, as desired: 412.4 req/s")
    assert "\x1b" not in out  # it isn't a terminal
    assert "free on" not in out  # what answers here knows no nodes


def test_a_model_its_batches_and_events_are_read_if_pods_have_nodes(desk: Desk) -> None:
    desk.holds("digits", situation="fixed")

    assert desk.run("digits")[0] == 0
    model, batches, events = sorted(
        desk.api.requests, key=lambda request: ("events" in request[1], "batch" in request[1])
    )
    assert model == ("GET", MODELS.format("team") + "/digits")
    assert batches[1].split("?")[0] == MODELS.format("team").replace("modeldeployments", "batchinferences")
    assert events[1].startswith("/api/v1/namespaces/team/events?")
    assert "fieldSelector=involvedObject.name%3Ddigits" in events[1]


def test_missing_resources_are_shown_with_the_nodes_capacity_and_its_holders(desk: Desk) -> None:
    desk.holds("digits")
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"nvidia.com/gpu": "4"}}
    node = {"metadata": {"name": "gpu-1"}, "status": ready}
    held = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "3"}}}
    pod = {"metadata": {"namespace": "batch", "name": "train"}, "spec": {"nodeName": "gpu-1", "containers": [held]}}
    desk.api.answers |= {"/api/v1/nodes": (200, {"items": [node]}), "/api/v1/pods": (200, {"items": [pod]})}

    assert "capacity    1 of 4 nvidia.com/gpu free on 1 node; batch/train holds 3\n" in desk.run("digits")[1]
    (room,) = json.loads(desk.run("digits", "-o", "json")[1])["freeCapacity"]
    assert (room["resource"], room["total"], room["free"]) == ("nvidia.com/gpu", 4, 1)
    assert room["holders"] == [{"name": "batch/train", "count": 3}]
    (path_of_pods,) = {path for _, path in desk.api.requests if path.startswith("/api/v1/pods")}
    assert "nodeName" in path_of_pods  # pods that have none hold nothing


def test_a_user_without_rights_to_nodes_gets_the_rest(desk: Desk) -> None:
    desk.holds("digits")
    desk.api.answers["/api/v1/nodes"] = failure(403, 'nodes is forbidden: User "bob" cannot list resource "nodes"')
    status, out, err = desk.run("digits")

    assert (status, err) == (0, "")
    assert "3 of 6 ready, 1 starting, 2 unschedulable" in out
    assert "free on" not in out


def test_another_namespace_is_asked_for_by_name(desk: Desk) -> None:
    desk.holds("digits", namespace="shop")

    assert desk.run("digits", "-n", "shop")[0] == 0


def test_a_context_without_a_namespace_means_default(desk: Desk) -> None:
    desk.holds("digits", namespace="default")
    kubeconfig(desk.kubeconfig, desk.api.url, namespace=None)

    assert desk.run("digits")[0] == 0


def test_json_and_yaml_hold_the_same(desk: Desk) -> None:
    desk.holds("digits")
    as_json = json.loads(desk.run("digits", "-o", "json")[1])

    assert as_json["replicas"] == 6
    assert [part["name"] for part in as_json["parts"] if part["wins"]] == ["backlog"]
    assert yaml.safe_load(desk.run("digits", "-o", "yaml")[1]) == as_json


def test_an_unknown_name_is_answered_with_existing_names_the_nearest_first(desk: Desk) -> None:
    desk.holds("bert", "digits", "digits-large", "whisper")
    desk.api.answers[MODELS.format("team") + "/digit"] = failure(
        404, 'modeldeployments.serving.halcyon.dev "digit" not found'
    )

    message = desk.wrong("digit")
    assert message.startswith("no ModelDeployment digit in namespace team; existing ones: digits, digits-large, ")
    assert message.endswith("for example halcyon explain digits")


def test_many_names_are_cut_short_and_counted(desk: Desk) -> None:
    desk.holds(*(f"model-{n:03}" for n in range(25)))

    assert "model-009 and 15 more; for example halcyon explain model-000" in desk.wrong("model-x")


def test_a_namespace_without_models_says_where_to_look(desk: Desk) -> None:
    desk.holds()

    assert desk.wrong("digits") == (
        "no ModelDeployment digits in namespace team, nor any other; list all namespaces with kubectl get mdep -A, "
        "and choose one with -n"
    )


def test_a_cluster_without_the_crd_says_how_to_install_it(desk: Desk) -> None:
    message = desk.wrong("digits")

    assert message.startswith(f"the cluster at {desk.api.url} has no CRD ModelDeployment: Halcyon is not installed")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (failure(403, 'User "bob" cannot get resource'), 'no access: User "bob" cannot get resource; you need get and list on modeldeployments.serving.halcyon.dev in namespace team'),
        (failure(401, "Unauthorized"), "rejects the kubeconfig's credentials (Unauthorized); log in again"),
        (failure(500, "etcdserver: no leader"), "responds with 500: etcdserver: no leader; try again"),
        ((502, "<html>"), "responds with 502: Bad Gateway; try again"),
        ((200, "<html>"), "is not a Kubernetes API server"),
    ],
)  # fmt: skip
def test_a_refusal_is_one_line_with_what_to_do(desk: Desk, answer: tuple[int, Any], message: str) -> None:
    desk.api.answers[MODELS.format("team") + "/digits"] = answer

    assert message in desk.wrong("digits")


def test_an_unreachable_cluster_is_one_line(desk: Desk) -> None:
    with socket.socket() as unlistened:
        unlistened.bind(("127.0.0.1", 0))  # bound and not listening: refused
        server = f"http://127.0.0.1:{unlistened.getsockname()[1]}"
        kubeconfig(desk.kubeconfig, server)
        message = desk.wrong("digits")

    assert message.startswith(f"no cluster: {server} is unreachable (Failed to establish")
    assert "refused" in message


@pytest.mark.parametrize(
    "content", ["", "[", "[]", "kind: Config", '{"current-context": "gone", "contexts": []}', "\x00"]
)
def test_a_kubeconfig_that_cannot_be_used_is_named(desk: Desk, content: str) -> None:
    desk.kubeconfig.write_text(content)

    assert desk.wrong("digits").startswith(f"no cluster: kubeconfig {desk.kubeconfig} is invalid: ")


def test_a_missing_kubeconfig_is_reported_with_the_path_that_was_tried(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", f"{desk.folder}/one:{desk.folder}/two")

    assert "doesn't exist; name one" in desk.wrong("digits", config=f"{desk.folder}/gone")
    assert main(["explain", "digits"]) == 2


def test_the_variable_kubeconfig_counts_where_the_option_is_left_out(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.holds("digits")
    monkeypatch.setenv("KUBECONFIG", f"{desk.folder}/gone:{desk.kubeconfig}")

    assert main(["explain", "digits"]) == 0
    assert capsys.readouterr().out.startswith("team/digits: ")


@pytest.mark.parametrize("arguments", [[], ["digits", "-o", "xml"], ["digits", "other"]])
def test_wrong_usage_is_status_2(arguments: list[str]) -> None:
    assert main(["explain", *arguments]) == 2


def test_an_unknown_name_without_the_right_to_list_is_named(desk: Desk) -> None:
    desk.api.answers[MODELS.format("team")] = failure(403, "modeldeployments is forbidden: User cannot list")
    desk.api.answers[MODELS.format("team") + "/digit"] = failure(404, "not found")
    assert desk.wrong("digit") == (
        "no ModelDeployment digit in namespace team, and you may not list the others; check the name and the namespace, "
        "which -n chooses"
    )


def test_a_pod_without_a_service_account_is_no_invalid_kubeconfig(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{desk.folder}/none")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    assert main(["get"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("halcyon get: no cluster: the pod has no service account: ")
    assert "or name a kubeconfig" in message


def test_a_ranking_of_no_models_says_so(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.holds()
    assert main(["top", "--kubeconfig", str(desk.kubeconfig)]) == 0
    assert capsys.readouterr().out.startswith("no ModelDeployments in namespace team; create one with kubectl apply")
