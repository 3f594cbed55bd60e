"""The command line on an API server's stand-in: completion of names, contexts. Not here: help and usage (tests/unit/cli)."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from halcyon.api.spec.parse import parse
from halcyon.api.user_annotations import PAUSED_FROM, REASON
from halcyon.control.rollout.rollout_record import RolloutRecord, RolloutResult
from halcyon.main import main
from halcyon.render import revision
from halcyon.render.site import Subject
from halcyon_cli.commands.completion import kubectl
from halcyon_cli.commands.installation import dashboard
from halcyon_cli.commands.logs import MAX_FOLLOWED
from halcyon_cli.commands.rollouts import status as rollout_status
from halcyon_cli.kube.client import Cluster, Target
from halcyon_cli.kube.object_writer import ObjectWriter
from tests.integration.cli.test_explain_command import MODELS, Desk
from tests.unit.cli.stand_in_api import failure, serving
from tests.unit.render.rendered import SITE

RELEASE = {"meta.helm.sh/release-name": "halcyon", "meta.helm.sh/release-namespace": "two"}
BEFORE = "serving.halcyon.dev/mode-before-pause"


def test_kubectl_completes_commands_options_and_names_of_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        desk.holds("digits", "bert", "digits-large")
        config = ["--kubeconfig", str(desk.kubeconfig)]

        assert completed(capsys, "ex") == ["explain", ":4"]
        assert completed(capsys, "lint", "--st") == ["--strict", ":4"]
        assert completed(capsys, "explain", *config, "dig") == ["digits", "digits-large", ":4"]
        assert completed(capsys, "lint", "-f", "") == [":0"]
        assert completed(capsys, "explain", *config, "-n", "elsewhere", "") == [":4"]


def completed(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """What kubectl is told, without the help beside."""
    assert kubectl(list(words)) == 0
    return [line.partition("\t")[0] for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("command", "situation", "text"),
    [
        (["scale", "m", "4", "--pause"], "rising", "scaled to 4\n  next: halcyon status m -w"),
        (["scale", "--replicas=4", "m", "--pause"], "rising", "scaled to 4\n  next: halcyon status m -w"),
        (["pause", "m"], "rising", "paused at 4\n  next: halcyon resume m"),
        (["resume", "m"], "paused", "resumed (was Paused)\n  next: halcyon explain m"),
        (["undo", "m"], "rising", "rolled back to revision 1\n  next: halcyon status m -w"),
        (["restart", "m"], "rising", "restarted\n  next: halcyon status m -w"),
    ],
)
def test_a_change_prints_a_message_or_the_changed_object(
    command: list[str], situation: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        desk.holds("m", situation=situation)
        api.answers[REVISIONS] = (200, {"items": revisions(desk)})
        pauses = command[0] in {"scale", "pause"}
        if pauses:
            model = api.answers[MODELS.format("team") + "/m"][1]
            model["spec"]["replicas"] = 4
            model["status"] |= {
                "observedGeneration": model["metadata"]["generation"],
                "scaling": {**model["status"]["scaling"], "mode": "Paused"},
            }
        config = ["--kubeconfig", str(desk.kubeconfig)]
        arguments = [*command, *config, "--no-color"]

        assert main(arguments) == 0
        assert capsys.readouterr().out == f"modeldeployment.serving.halcyon.dev/m {text} {' '.join(config)}\n"
        assert main([*arguments, "-o", "name"]) == 0
        assert capsys.readouterr().out == "modeldeployment.serving.halcyon.dev/m\n"
        assert main([*arguments, "-o", "json"]) == 0
        changed = json.loads(capsys.readouterr().out)
        assert main([*arguments, "-o", "yaml"]) == 0
        assert yaml.safe_load(capsys.readouterr().out) == changed
        assert (changed["kind"], changed["metadata"]["name"]) == ("ModelDeployment", "m")
        methods = [method for method, path in api.requests if "controllerrevisions" not in path]
        assert methods == (["GET", "PATCH", "GET"] if pauses else ["GET", "PATCH"]) * 4


def test_the_next_command_is_for_the_same_cluster_and_namespace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        desk.holds("m", namespace="vision")
        api.answers[f"{MODELS.format('vision')}/m"][1]["status"]["revision"] = {"target": "m-1"}
        config = ["-n", "vision", "--context", "x", "--kubeconfig", str(desk.kubeconfig)]
        assert main(["restart", "m", *config]) == 0
        assert capsys.readouterr().out.splitlines()[1] == f"  next: halcyon status m -w {' '.join(config)}"


@pytest.mark.parametrize(
    ("status", "printed", "error", "requests"),
    [
        ({"mode": "Paused"}, "scaled to 4, again after scaling had set 6 before it stopped", "", "GET PATCH GET PATCH"),
        ({"mode": "Active"}, "scaled to 4, again after", "m: the operator has not confirmed the pause", "PATCH"),
        ({"accepted": "False"}, "scaled to 4, again after", "m: the operator rejects the spec", "PATCH"),
    ],
)
def test_replicas_that_a_scaler_has_overwritten_are_set_again(
    *,
    status: dict[str, str],
    printed: str,
    error: str,
    requests: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("halcyon_cli.commands.scale.RELEASE_TIMEOUT_S", 0.0)
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        desk.holds("m")
        model = api.answers[MODELS.format("team") + "/m"][1]
        model["status"]["observedGeneration"] = model["metadata"]["generation"]
        model["status"]["scaling"] |= {"mode": status.get("mode", "Active")}
        accepted = {"type": "Accepted", "status": status.get("accepted", "True"), "message": "maxReplicas is too large"}
        model["status"]["conditions"] = [accepted]

        exit_status = main(["scale", "m", "4", "--pause", "--kubeconfig", str(desk.kubeconfig), "--no-color"])
        captured = capsys.readouterr()

        assert exit_status == int(bool(error))
        assert captured.out.startswith(f"modeldeployment.serving.halcyon.dev/m {printed}")
        assert captured.err.startswith(error)
        assert bool(captured.err) == bool(error)
        assert " ".join(method for method, _ in api.requests).endswith(requests)


def test_a_canary_and_a_refresh_have_their_results_as_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        desk.holds("m")
        model = api.answers[MODELS.format("team") + "/m"][1]
        data = ["--kubeconfig", str(desk.kubeconfig), "-o", "json"]

        assert main(["refresh", "m", *data]) == 0
        assert json.loads(capsys.readouterr().out) == []
        outdated = {"type": "RuntimeOutdated", "status": "True", "message": "the image differs"}
        model["status"]["conditions"].append(outdated)
        assert main(["refresh", "m", "--dry-run", *data]) == 0
        (dry,) = json.loads(capsys.readouterr().out)
        assert (dry["namespace"], dry["name"], dry["result"]) == ("team", "m", "outdated")
        assert main(["refresh", "m", *data]) == 0
        (started,) = json.loads(capsys.readouterr().out)
        assert started == {**dry, "result": "started"}

        model["status"]["rollout"] = {"phase": "Progressing", "canary": {"step": 1, "weight": 5}}
        assert main(["promote", "m", *data]) == 0
        assert json.loads(capsys.readouterr().out)["metadata"]["name"] == "m"


def test_the_named_context_counts_and_another_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        desk.holds("digits")

        assert desk.run("digits", "--context", "x")[0] == 0
        assert "has no context y; it has x, for example --context x" in desk.wrong("digits", "--context", "y")


REVISIONS = "/apis/apps/v1/namespaces/team/controllerrevisions"


_ENDED = ("2025-11-21T04:00:00Z", "2025-11-21T05:00:00Z", "2025-11-21T06:00:00Z")


def revisions(desk: Desk, name: str = "m", ended: Sequence[str] = _ENDED) -> list[dict[str, Any]]:
    """Return three ControllerRevisions: the first was served, the second failed, and the third serves."""
    model = desk.api.answers[f"{MODELS.format('team')}/{name}"][1]
    model["spec"]["model"] = {"source": {"uri": "s3://models/m/3"}}
    model["spec"].pop("runtime", None)
    model["status"]["revision"] = {"current": f"{name}-c2d65bc95f", "target": f"{name}-c2d65bc95f"}
    documents = []
    records = (
        RolloutRecord(ended=ended[0], result=RolloutResult.SERVED, served=ended[0]),
        RolloutRecord(ended=ended[1], result=RolloutResult.FAILED, message="no such tensor"),
        RolloutRecord(ended=ended[2], result=RolloutResult.SERVED, served=ended[2]),
    )
    keys = ("09b4bffe65", "77aa31c0de", "c2d65bc95f")
    subject = Subject("team", name, f"uid-{name}")
    for number, (key, record) in enumerate(zip(keys, records, strict=True), 1):
        spec = parse(name, {"model": {"source": {"uri": f"s3://models/m/{number}"}}})
        stored = revision.record(subject, record.on(revision.render(subject, spec, SITE, None, number=number)))
        documents.append(stored | {"metadata": stored["metadata"] | {"name": f"{name}-{key}"}})
    return documents


def test_the_revisions_of_a_model_are_listed_and_restored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        desk.holds("m")
        api.answers[REVISIONS] = (200, {"items": revisions(desk)})
        config = ["--kubeconfig", str(desk.kubeconfig)]

        def command(*arguments: str) -> tuple[int, str, str]:
            status = main([*arguments, *config])
            captured = capsys.readouterr()
            return status, captured.out, captured.err

        rows = [line.split() for line in command("history", "m")[1].splitlines()]
        assert rows[0] == ["REVISION", "NAME", "STATE", "AGE", "CAUSE"]
        assert [row[:3] for row in rows[1:]] == [
            ["3", "m-c2d65bc95f", "serving"],
            ["2", "m-77aa31c0de", "failed"],
            ["1", "m-09b4bffe65", "served"],
        ]
        assert rows[2][4:] == ["no", "such", "tensor"]
        assert "uri: s3://models/m/1" in command("history", "m", "--revision", "1")[1]
        change = {"spec": {"model": {"source": {"uri": "s3://models/m/1"}}}}
        assert yaml.safe_load(command("undo", "m", "--dry-run")[1]) == change
        assert json.loads(command("undo", "m", "--dry-run", "--to-revision", "1", "-o", "json")[1]) == change
        assert "the spec of m is that of revision 3 already" in command("undo", "m", "--to-revision", "3")[2]
        assert "m has no revision 9; it has 3, 2, 1" in command("undo", "m", "--to-revision", "9")[2]


def test_a_spec_without_a_revision_is_rolled_back_to_the_newest_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rejected spec has no revision, and revision 3 is served all the time."""
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        desk.holds("m")
        api.answers[REVISIONS] = (200, {"items": revisions(desk)})
        model = api.answers[f"{MODELS.format('team')}/m"][1]
        model["spec"]["model"] = {"source": {"uri": "s3://models/m/typo"}}
        model["metadata"]["resourceVersion"] = "7"
        config = ["--kubeconfig", str(desk.kubeconfig)]
        assert main(["undo", "m", "--dry-run", *config]) == 0
        assert yaml.safe_load(capsys.readouterr().out)["spec"]["model"]["source"]["uri"] == "s3://models/m/3"

        def changed_by_another(*_: object) -> None:
            monkeypatch.undo()
            model["spec"]["model"] = {"source": {"uri": "s3://models/m/3"}, "warmup": []}
            model["metadata"]["resourceVersion"] = "8"

        monkeypatch.setattr(ObjectWriter, "change_version", changed_by_another)
        assert main(["undo", "m", "--to-revision", "1", *config]) == 0
        assert "rolled back to revision 1" in capsys.readouterr().out
        patch = json.loads(api.bodies[-1])
        assert patch["metadata"] == {"resourceVersion": "8"}


@pytest.mark.parametrize(
    ("changes", "status", "text"),
    [
        ({}, 0, "m successfully rolled out: "),
        ({"observedGeneration": 0}, 1, "waiting for the operator to observe the spec of m"),
        ({"rollout": {"phase": "Progressing", "message": "1 of 3 pods"}}, 1, "waiting for the rollout of m: 1 of 3 pods"),
        ({"rollout": {"phase": "RolledBack", "failed": {"message": "no tensor"}}}, 1, "the rollout of m has failed: no tensor"),
        ({"conditions": [{"type": "Accepted", "status": "False", "message": "bad"}]}, 1, "the spec of m is not accepted: bad"),
        ({"conditions": [{"type": "Stalled", "status": "True", "message": "no node"}]}, 1, "m is stalled: no node"),
        ({"conditions": [{"type": "Ready", "status": "False", "message": "0 ready"}]}, 1, "waiting for m to be ready: 0 ready"),
    ],
)  # fmt: skip
def test_the_exit_status_says_whether_the_spec_is_served(
    changes: dict[str, Any], status: int, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        desk.holds("m")
        model = api.answers[MODELS.format("team") + "/m"][1]
        model["metadata"]["generation"] = 1
        model["status"] |= {"observedGeneration": 1, "rollout": {"phase": "Complete"}}
        model["status"] |= {"conditions": [{"type": "Ready", "status": "True", "message": "3 of 3 servers are ready"}]}
        model["status"] |= changes
        arguments = ["status", "m", "--kubeconfig", str(desk.kubeconfig)]

        assert main(arguments) == status
        assert text in capsys.readouterr().out
        assert main([*arguments, "--watch", "--for", "1ms"]) == status
        captured = capsys.readouterr()
        assert text in captured.out
        assert ("not served within 0.001 s" in captured.err) == (status == 1 and text.startswith("waiting"))


def test_a_model_that_is_deleted_while_watched_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        desk.holds("m", "other")
        path = f"{MODELS.format('team')}/m"
        api.answers[path][1]["status"] = {}

        def deleted(_: float) -> None:
            api.answers[path] = failure(404, "not found")

        monkeypatch.setattr(rollout_status.follow, "__kwdefaults__", {"clock": lambda: 0.0, "pause": deleted})
        assert main(["status", "m", "-w", "--kubeconfig", str(desk.kubeconfig)]) == 2
        assert capsys.readouterr().err == (
            "halcyon status: ModelDeployment m was deleted while its rollout was in progress\n"
        )


def test_all_models_are_paused_and_get_their_modes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        desk.holds("a", "b", "c")
        items = api.answers[MODELS.format("team")][1]["items"]
        items[1]["spec"]["scaling"]["mode"] = "Paused"
        del items[2]["spec"]["scaling"]
        config = ["--kubeconfig", str(desk.kubeconfig)]

        assert main(["pause", "--all", "--reason", "incident", *config]) == 0
        assert capsys.readouterr().out.splitlines() == [
            "modeldeployment.serving.halcyon.dev/a paused in namespace team",
            "1 of 3 models paused",
        ]
        assert [path for method, path in api.requests if method == "PATCH"] == [f"{MODELS.format('team')}/a"]
        items[0]["spec"]["scaling"]["mode"] = "Paused"
        items[0]["metadata"].setdefault("annotations", {})[PAUSED_FROM] = "Recommend"
        assert main(["resume", "--all", "-o", "name", *config]) == 0
        assert capsys.readouterr().out.splitlines() == ["modeldeployment.serving.halcyon.dev/a"]
        assert main(["resume", *config]) == 2
        assert "give a name or --all; for example halcyon resume resnet50" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "mode", "annotations", "expected"),
    [
        ("pause m", "Recommend", {}, {REASON: None, PAUSED_FROM: None, BEFORE: "Recommend"}),
        ("pause m", "Active", {}, {REASON: None, PAUSED_FROM: None, BEFORE: None}),
        ("pause m", "Paused", {PAUSED_FROM: "Recommend"}, {REASON: None, PAUSED_FROM: None, BEFORE: "Recommend"}),
        ("scale m 4 --pause", "Recommend", {}, {REASON: None, PAUSED_FROM: None, BEFORE: "Recommend"}),
        ("scale m 4", "Paused", {PAUSED_FROM: "Active", REASON: "incident"}, {}),
        ("scale m 4 --reason more", "Paused", {BEFORE: "Recommend"}, {REASON: "more"}),
        ("scale m 4", "Recommend", {REASON: "test"}, {REASON: None, PAUSED_FROM: None, BEFORE: None}),
    ],
)
def test_a_paused_model_keeps_the_mode_that_it_had_before(
    command: str,
    mode: str,
    annotations: dict[str, str],
    expected: dict[str, str | None],
    tmp_path: Path,
) -> None:
    unread: Any = None
    with serving() as api:
        desk = Desk(tmp_path, unread, api)
        desk.holds("m")
        model = api.answers[f"{MODELS.format('team')}/m"][1]
        model["spec"]["scaling"]["mode"] = mode
        model["status"] |= {"observedGeneration": model["metadata"]["generation"], "scaling": {"mode": "Paused"}}
        model["metadata"]["annotations"] = annotations
        assert main([*command.split(), "--kubeconfig", str(desk.kubeconfig)]) == 0
        assert json.loads(api.bodies[0])["metadata"]["annotations"] == expected


def test_a_pause_names_the_replicas_in_force(tmp_path: Path, capsys: Any) -> None:
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        desk.holds("m", situation="recommend")
        spec = api.answers[f"{MODELS.format('team')}/m"][1]["spec"]
        spec["replicas"], spec["scaling"]["minReplicas"] = 1, 3
        assert main(["pause", "m", "--kubeconfig", str(desk.kubeconfig)]) == 0
        assert "paused at 3" in capsys.readouterr().out


def test_a_model_that_only_recommended_does_so_again_after_a_pause(tmp_path: Path, capsys: Any) -> None:
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        desk.holds("m", situation="paused")
        api.answers[f"{MODELS.format('team')}/m"][1]["metadata"]["annotations"] = {BEFORE: "Recommend"}
        assert main(["resume", "m", "--kubeconfig", str(desk.kubeconfig)]) == 0
        assert "resumed (was Paused), in mode Recommend as before" in capsys.readouterr().out
        assert json.loads(api.bodies[0])["spec"] == {"scaling": {"mode": "Recommend"}}


def test_models_that_can_not_be_changed_are_named_beside_those_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        desk.holds("a", "b")
        config = ["--kubeconfig", str(desk.kubeconfig)]
        api.answers[f"{MODELS.format('team')}/b"] = failure(422, "spec.scaling is immutable")

        assert main(["pause", "--all", *config]) == 1
        printed = capsys.readouterr()
        assert printed.out.splitlines()[-1] == "1 of 2 models paused"
        assert "halcyon pause: team/b: the cluster at" in printed.err
        assert "spec.scaling is immutable" in printed.err
        api.answers[f"{MODELS.format('team')}/a"] = failure(422, "spec.scaling is immutable")
        assert main(["pause", "--all", *config]) == 2


def test_refresh_keeps_its_results_if_a_later_model_is_forbidden(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outdated = {"type": "RuntimeOutdated", "status": "True", "message": "another image"}
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        desk.holds("a", "b", "c")
        path = MODELS.format("team")
        for model in api.answers[path][1]["items"]:
            model["status"] |= {"revision": {"target": "old"}, "conditions": [outdated]}
        served = {"revision": {"current": "new", "target": "new"}, "rollout": {"phase": "Complete"}}
        api.answers[f"{path}/a"] = (200, api.answers[f"{path}/a"][1] | {"status": served})
        api.answers[f"{path}/b"] = failure(403, "modeldeployments is forbidden")
        config = ["--kubeconfig", str(desk.kubeconfig)]

        assert main(["refresh", "--all", "-o", "json", *config]) == 1
        printed = capsys.readouterr()
        assert [row["result"] for row in json.loads(printed.out)] == ["served", "skipped", "skipped"]
        assert "2 of 3: team/b can't be refreshed: no access: modeldeployments is forbidden" in printed.err
        api.answers[f"{path}/a"] = failure(403, "modeldeployments is forbidden")
        assert main(["refresh", "--all", *config]) == 2


def test_objects_are_printed_as_kubectl_prints_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        desk.holds("a", "b")
        config = ["--kubeconfig", str(desk.kubeconfig)]

        assert main(["get", "-l", "team=x", "-o", "name", *config]) == 0
        assert capsys.readouterr().out.split() == [f"modeldeployment.serving.halcyon.dev/{name}" for name in "ab"]
        assert "labelSelector=team%3Dx" in api.requests[-1][1]
        assert main(["get", "-o", "json", *config]) == 0
        assert json.loads(capsys.readouterr().out)["kind"] == "List"
        assert main(["get", "a", "-o", "yaml", *config]) == 0
        shown = capsys.readouterr().out
        assert yaml.safe_load(shown) == api.answers[MODELS.format("team") + "/a"][1]
        assert "&id" not in shown


def test_logs_are_those_of_the_named_component(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pods = "/api/v1/namespaces/team/pods"
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        desk.holds("m")
        config = ["--kubeconfig", str(desk.kubeconfig)]
        assert main(["logs", "m", *config]) == 2
        assert "m has no pod with triton now" in capsys.readouterr().err

        api.answers[pods] = (200, {"items": [{"metadata": {"name": f"m-a-{n}"}} for n in (2, 1)]})
        api.answers |= {f"{pods}/m-a-1/log": (200, "one\ntwo\n"), f"{pods}/m-a-2/log": (200, "three\n")}
        assert main(["logs", "m", *config]) == 0
        assert capsys.readouterr().out.splitlines() == ["[m-a-1] one", "[m-a-1] two", "[m-a-2] three"]
        assert main(["logs", "m", "-c", "haproxy", "--previous", "--pod", "m-a-1", "--since", "5m", *config]) == 0
        assert capsys.readouterr().out.splitlines() == ["one", "two"]
        assert api.requests[-1][1].endswith("?container=haproxy&tailLines=100&previous=true&sinceSeconds=300")
        assert main(["logs", "m", "-f", "--tail", "5", *config]) == 0
        assert sorted(capsys.readouterr().out.splitlines()) == ["[m-a-1] one", "[m-a-1] two", "[m-a-2] three"]
        assert main(["logs", "m", "--pod", "x", *config]) == 2
        assert "m has no pod x with triton; it has m-a-1, m-a-2" in capsys.readouterr().err


def test_pods_whose_logs_are_not_followed_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pods = "/api/v1/namespaces/team/pods"
    names = [f"m-a-{n}" for n in range(MAX_FOLLOWED + 2)]
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        desk.holds("m")
        api.answers[pods] = (200, {"items": [{"metadata": {"name": name}} for name in names]})
        api.answers |= {f"{pods}/{name}/log": (200, "one\n") for name in names}

        assert main(["logs", "m", "-f", "--kubeconfig", str(desk.kubeconfig)]) == 0
        printed = capsys.readouterr()
        assert len(printed.out.splitlines()) == MAX_FOLLOWED
        assert f"follows the logs of {MAX_FOLLOWED} of {len(names)} pods; for another pod: --pod NAME" in printed.err


def test_the_versions_of_both_sides_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        config = ["--kubeconfig", str(desk.kubeconfig)]
        api.answers["/version"] = (200, {"gitVersion": "v1.35.0"})
        labels = {"app.kubernetes.io/version": "7.1.0"}
        operator = {"metadata": {"namespace": "halcyon-system", "name": "halcyon", "labels": labels}}
        api.answers["/apis/apps/v1/deployments"] = (200, {"items": [operator]})

        assert main(["version", *config]) == 0
        captured = capsys.readouterr()
        assert captured.out.splitlines()[1:] == ["Operator:    7.1.0 (halcyon-system/halcyon)", "Kubernetes:  v1.35.0"]
        assert "and the operator in halcyon-system is 7.1.0; install the same version" in captured.err
        assert main(["version", "--client"]) == 0
        assert capsys.readouterr().out.startswith("Client:      ")


def test_the_dashboard_is_found_in_the_pods_of_the_operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        config = ["--kubeconfig", str(desk.kubeconfig), "--no-browser"]
        pod = {
            "metadata": {"namespace": "halcyon-system", "name": "halcyon-0"},
            "spec": {"containers": [{"args": ["operator", "--dashboard=localhost", "--dashboard-port=8091"]}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }
        api.answers["/api/v1/pods"] = (200, {"items": []})
        assert main(["dashboard", *config]) == 2
        assert "no operator was found" in capsys.readouterr().err
        api.answers["/api/v1/pods"] = (200, {"items": [pod | {"status": {}}]})
        assert main(["dashboard", *config]) == 2
        assert "no pod of the operator in namespace halcyon-system is ready" in capsys.readouterr().err
        api.answers["/api/v1/pods"] = (200, {"items": [pod]})
        endpoint = dashboard.find(Cluster(Target("dashboard", desk.kubeconfig)))
        assert (endpoint[0].namespace, *endpoint[1:]) == ("halcyon-system", "halcyon-0", 8091, "http")
        pod["spec"] = {"containers": [{"args": ["operator"]}]}
        assert main(["dashboard", *config]) == 2
        assert "dashboard.enabled=true" in capsys.readouterr().err


def test_a_connection_is_copied_both_ways_until_it_ends() -> None:
    (browser, client), (tunnel, pod) = socket.socketpair(), socket.socketpair()
    copying = threading.Thread(target=dashboard.copy_both_ways, args=(client, tunnel))
    copying.start()
    with browser, client, tunnel, pod:
        browser.sendall(b"GET /")
        assert pod.recv(100) == b"GET /"
        pod.sendall(b"200")
        assert browser.recv(100) == b"200"
        browser.shutdown(socket.SHUT_WR)
        copying.join(10)
        assert not copying.is_alive()


def test_the_switch_of_the_site_is_set_in_the_operators_namespace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        config = ["--kubeconfig", str(desk.kubeconfig)]
        assert main(["pause", "--site", *config]) == 2
        assert "no operator was found" in capsys.readouterr().err
        operators: list[Any] = [{"metadata": {"namespace": name, "name": "halcyon"}} for name in ("one", "two")]
        api.answers["/apis/apps/v1/deployments"] = (200, {"items": operators})
        assert main(["pause", "--site", *config]) == 2
        assert "there are operators in one, two; choose one, for example -n one" in capsys.readouterr().err

        path = "/api/v1/namespaces/two/configmaps"
        stored = {"metadata": {"name": "halcyon-switches", "namespace": "two"}}
        api.answers[path] = (201, stored)
        assert main(["pause", "--site", "--reason", "incident", "-n", "two", *config]) == 0
        assert capsys.readouterr().out == "configmap/halcyon-switches set: no model loses a replica (incident)\n"
        assert api.requests[-2:] == [("PATCH", f"{path}/halcyon-switches"), ("POST", path)]
        api.answers[f"{path}/halcyon-switches"] = (200, stored)
        assert json.loads(api.bodies[-1])["metadata"] == {"name": "halcyon-switches"}
        operators[1]["metadata"] |= {"labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": RELEASE}
        api.answers.pop(f"{path}/halcyon-switches")
        assert main(["pause", "--site", "-n", "two", *config]) == 0
        assert json.loads(api.bodies[-1])["metadata"]["annotations"] == RELEASE
        capsys.readouterr()
        api.answers[f"{path}/halcyon-switches"] = (200, stored)
        assert main(["resume", "--site", "-n", "two", *config]) == 0
        resumed = json.loads(api.bodies[-1])
        assert (resumed["data"], resumed["metadata"]["annotations"]) == ({"holdScaleDown": None}, RELEASE)
        assert capsys.readouterr().out == "configmap/halcyon-switches set: scaling down is allowed again\n"
        assert main(["pause", "m", "--site", *config]) == 2


def test_all_images_are_listed_from_manifests_or_from_the_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    operator = {
        "kind": "Deployment",
        "metadata": {"namespace": "halcyon-system", "name": "halcyon"},
        "spec": {
            "template": {
                "spec": {
                    "containers": [{"image": "r/operator@sha256:1", "args": ["--server-image=r/triton:1", "--x=y"]}]
                }
            }
        },
    }
    model = {"kind": "ModelDeployment", "spec": {"runtime": {"image": "r/own:2"}}}
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all([operator, None, {"kind": "List", "items": [model]}]))
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        assert main(["images", "-f", str(file)]) == 0
        captured = capsys.readouterr()
        assert captured.out.split() == ["r/operator@sha256:1", "r/own:2", "r/triton:1"]
        assert captured.err.count("has no digest") == 2
        api.answers["/apis/apps/v1/deployments"] = (200, {"items": [operator]})
        api.answers["/apis/serving.halcyon.dev/v1alpha1/modeldeployments"] = (200, {"items": [model]})
        assert main(["images", "--kubeconfig", str(desk.kubeconfig), "-o", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["images"] == ["r/operator@sha256:1", "r/own:2", "r/triton:1"]
