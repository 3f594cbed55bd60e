"""The commands of people against a real API server and a real operator. Pods are KWOK's, so nobody answers requests.

What a page says, word for word, is the unit tests' matter.
"""

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.kubectl import Kubectl
from halcyon.api.user_annotations import REASON
from halcyon.kube import kinds
from halcyon.main import main
from tests.integration.operator_process import environment
from tests.integration.operator_space import Space, deployment, files
from tests.integration.waiting import PATIENCE, until

Run = Callable[..., tuple[int, str, str]]
SCALING: dict[str, Any] = {"minReplicas": 1, "maxReplicas": 5}


pytestmark = pytest.mark.more


@pytest.fixture
def halcyon(space: Space, kubectl: Kubectl, capsys: pytest.CaptureFixture[str]) -> Run:
    """`halcyon(command, ...)` in the test's namespace: (exit status, stdout, stderr)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main([*arguments, "-n", space.namespace, "--kubeconfig", str(kubectl.kubeconfig)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def test_a_model_is_shown_with_everything_that_was_made_for_it(space: Space, halcyon: Run) -> None:
    space.serve(replicas=2, scaling=SCALING)
    until(
        lambda: space.must(kinds.DEPLOYMENT, "m-balancer")["status"].get("readyReplicas"),
        lambda n: n == 2,
        goal="both balancers are ready",
    )
    status, out, err = halcyon("get", "m", "-o", "report")
    tree = json.loads(out)["tree"]

    assert (status, err) == (0, "")
    assert [child["kind"] for child in tree["children"]][:2] == ["Revision", "Balancer"]
    revision, balancer = tree["children"][:2]
    (slot,) = revision["children"]
    assert (revision["state"], slot["name"], slot["state"]) == ("serving", "m-a", "ready")
    assert {pod["state"] for pod in (*slot["children"], *balancer["children"])} == {"ready"}
    assert len(slot["children"]) == 2
    assert halcyon("get")[1].splitlines()[1].split()[:4] == ["m", "Ready", "2/2", "2"]
    assert halcyon("top", "--gpu-price", "2")[1].splitlines()[1].split()[:2] == ["m", "2/2"]


def test_a_person_fixes_the_replicas_with_a_reason_and_releases_them(space: Space, halcyon: Run) -> None:
    space.serve(replicas=1, scaling=SCALING)
    refused = halcyon("scale", "m", "3")
    assert refused[0] == 2
    assert "halcyon scale m 3 --pause" in refused[2]

    assert halcyon("scale", "m", "3", "--pause", "--reason", "load test until noon")[0] == 0
    until(space.replicas, lambda n: n == 3, goal="the Deployment has 3")
    assert "3 replicas (load test until noon); " in halcyon("explain", "m")[1]
    assert "load test until noon" in halcyon("get", "m")[1]
    assert "outside spec.scaling of m, minReplicas 1 to maxReplicas 5" in halcyon("scale", "m", "9")[2]

    assert halcyon("resume", "m")[1].startswith("modeldeployment.serving.halcyon.dev/m resumed (was Paused)")
    stored = space.must(kinds.MODEL_DEPLOYMENT, "m")
    assert stored["spec"]["scaling"]["mode"] == "Active"
    assert REASON not in stored["metadata"].get("annotations", {})
    assert halcyon("pause", "m")[0] == 0
    assert space.must(kinds.MODEL_DEPLOYMENT, "m")["spec"]["scaling"]["mode"] == "Paused"


def test_the_reason_for_fixed_replicas_is_in_the_condition(space: Space, halcyon: Run) -> None:
    space.serve(replicas=1)
    assert halcyon("scale", "m", "2", "--reason", "two nodes only")[0] == 0
    until(
        lambda: space.condition("ScalingActive")[2],
        lambda message: message == "the number of replicas is fixed: spec.replicas is 2 (two nodes only)",
        goal="the condition has the reason",
    )


def test_the_reason_why_a_model_is_not_served_is_named_and_bundled(space: Space, halcyon: Run, tmp_path: Path) -> None:
    secret = {"name": "DB_PASSWORD", "value": "hunter2"}
    runtime = {"gpu": {"count": 16}, "env": [secret, {"name": "MODE", "value": "fast"}]}
    space.apply(files(), deployment(runtime=runtime))
    until(
        lambda: space.condition("ServersReady")[1],
        lambda reason: reason == "Unschedulable",
        goal="no node has so many GPUs",
    )
    bundle = tmp_path / "m.tar.gz"
    status, out, err = halcyon("diagnose", "m", "--bundle", str(bundle), "--timeout", f"{3 * PATIENCE:g}s")

    assert (status, err) == (1, "")
    assert "\n1. no node has a free GPU\n   - pod m-a-" in out
    with tarfile.open(bundle) as archive:
        texts = {
            member.name.partition("/")[2]: str(archive.extractfile(member).read())  # type: ignore[union-attr]  # a file
            for member in archive.getmembers()
        }
    assert {"diagnosis.txt", "tree.txt", "explain.txt", "events.yaml", "objects/ModelDeployment/m.yaml"} <= texts.keys()
    assert any(name.startswith("objects/Pod/m-a-") for name in texts)
    assert not [name for name, text in texts.items() if "hunter2" in text]
    assert "fast" in texts["objects/ModelDeployment/m.yaml"]
    assert bundle.stat().st_mode & 0o077 == 0
    assert "exists already" in halcyon("diagnose", "m", "--bundle", str(bundle), "--timeout", f"{3 * PATIENCE:g}s")[2]


def test_a_watch_shows_every_change_until_the_model_is_gone(space: Space, kubectl: Kubectl, tmp_path: Path) -> None:
    space.serve(replicas=1)
    seen = tmp_path / "seen"
    command = [
        sys.executable,
        "-m",
        "halcyon.main",
        "get",
        "m",
        "-w",
        "-n",
        space.namespace,
        "--for",
        "5m",
    ]
    with seen.open("w") as out:
        looking = subprocess.Popen([*command, "--kubeconfig", str(kubectl.kubeconfig)], stdout=out, env=environment())
    try:
        until(seen.read_text, lambda text: "1/1 ready" in text, goal="the first page is there", limit_s=60)
        space.scale(3)
        until(seen.read_text, lambda text: "3/3 ready" in text, goal="the change is shown", limit_s=60)
        space.delete(kinds.MODEL_DEPLOYMENT, "m")
        assert looking.wait(60 * PATIENCE) == 0
    finally:
        looking.kill()
        looking.wait()
    assert seen.read_text().rstrip().endswith("ModelDeployment m was deleted")


def test_processes_load_nothing_of_the_commands_of_people() -> None:
    code = "import sys, halcyon.main, halcyon.balancer.agent.main, halcyon.fetch.main; print(*{'click', 'rich'} & sys.modules.keys())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": "operator:cli"}
    )
    assert done.stdout.split() == []
