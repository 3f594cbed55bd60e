"""docs/guides/install.md by its own commands, from a bare cluster to a bare cluster; the last file here, for it takes the chart away.

The page's order is a reader's; here each way begins where the one before has ended. Replaced are the values file and the registry:
the images are on the node.
"""

import json
from pathlib import Path

import pytest

from demo import models
from demo.errors import DemoError
from demo.kube import SYSTEM, Kube
from demo.models import REPOSITORY
from e2e.guides import outcome
from e2e.guides.conftest import environment, run, run_steps
from e2e.shown_output import Step, console_steps

PAGE = REPOSITORY / "docs" / "guides" / "install.md"
PUSH, INSTALL, TEST, CRDS, NAMESPACED, UPGRADE, REMOVE, DELETE_MODELS, REMOVE_TOO, DELETE_CRD, KUSTOMIZE = (
    console_steps(PAGE)
)
EXAMPLE = str(REPOSITORY / "manifests" / "examples" / "digits.yaml")
VALUES = "build/images-values.yaml"
LIMIT_S = 240
CRD = "modeldeployments.serving.halcyon.dev"


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the values file of `make images push`, for images that are on the node."""
    file = tmp_path_factory.mktemp("values") / "images-values.yaml"
    file.write_text(
        "images: {registry: localhost}\ntest: {image: {registry: localhost, repository: tritonserver-cpu, tag: '24.10'}}\n"
    )
    return file


@pytest.fixture
def bare(kube: Kube) -> Kube:
    """Return the cluster without Halcyon."""
    for command in (REMOVE, DELETE_CRD):
        run(f"{command.script.partition('#')[0]} --ignore-not-found", kube, limit_s=LIMIT_S)
    return kube


def follow(step: Step, kube: Kube, *, replacement: tuple[str, str] = ("", "")) -> str | None:
    """Run a command of the page, with a text replaced, and record its output. Return how this differs from the page's."""
    script = step.script.replace(*replacement) if replacement[0] else step.script
    (printed,) = run_steps([script], environment(kube), limit_s=LIMIT_S)
    comparison = outcome.compare(step, printed)
    outcome.record(PAGE, {step.script: comparison})
    return comparison.difference


def exists(kube: Kube, resource: str, *, namespace: str = SYSTEM) -> bool:
    return bool(kube("get", resource, "--ignore-not-found", "-o", "name", namespace=namespace).strip())


def test_the_push_is_the_one_that_readme_has() -> None:
    assert PUSH.script in (REPOSITORY / "README.md").read_text()


def test_install_test_upgrade_remove_and_end_everything(bare: Kube, values: Path) -> None:
    assert REMOVE.script == REMOVE_TOO.script
    assert UPGRADE.script in {step.script for step in console_steps(PAGE.with_name("upgrade.md"))}
    values_file = (VALUES, str(values))
    assert all(VALUES in step.script for step in (INSTALL, UPGRADE))
    differences = [follow(step, bare, replacement=values_file) for step in (INSTALL, TEST, UPGRADE)]
    assert not exists(bare, "modeldeployments"), "helm test leaves nothing"
    bare("apply", "-f", EXAMPLE)
    models.wait_until_served(bare, "digits", replicas=1)
    serving = {pod["metadata"]["uid"] for pod in bare.pods("digits", "server")}

    differences.append(follow(REMOVE, bare))
    assert not exists(bare, "deployment/halcyon")
    assert {pod["metadata"]["uid"] for pod in bare.pods("digits", "server")} == serving
    assert bare.model("digits") is not None

    differences.append(follow(INSTALL, bare, replacement=values_file))
    models.wait_until_served(bare, "digits", replicas=1)
    assert {pod["metadata"]["uid"] for pod in bare.pods("digits", "server")} == serving

    differences += [follow(step, bare) for step in (DELETE_MODELS, REMOVE_TOO, DELETE_CRD)]
    with pytest.raises(DemoError, match="NotFound"):
        bare("get", "crd", CRD)
    bare("wait", "--for=delete", "pod", "-l", "serving.halcyon.dev/model-deployment=digits", "--timeout=90s")
    bare("delete", "-f", EXAMPLE, "--ignore-not-found")
    assert [difference for difference in differences if difference] == []


def test_in_listed_namespaces(bare: Kube, values: Path) -> None:
    for namespace in ("team-a", "team-b"):
        bare("create", "namespace", namespace)
    try:
        differences = [follow(CRDS, bare), follow(NAMESPACED, bare, replacement=(VALUES, str(values)))]
        bare("rollout", "status", "deployment/halcyon", "--timeout=120s", namespace="halcyon-team")
        cluster_objects = json.loads(
            bare("get", "clusterroles,clusterrolebindings", "-l", "app.kubernetes.io/instance=halcyon", "-o", "json")
        )
        assert cluster_objects["items"] == []
        assert [difference for difference in differences if difference] == []
    finally:
        bare.helm("uninstall", "halcyon", "--namespace=halcyon-team", "--ignore-not-found")
        bare.helm("uninstall", "halcyon-crds", "--ignore-not-found")
        bare("delete", "namespace", "team-a", "team-b", "halcyon-team", "--wait=false")


def test_with_kustomize(bare: Kube) -> None:
    try:
        difference = follow(KUSTOMIZE, bare, replacement=("YOUR.REGISTRY/PATH", "localhost"))
        bare("rollout", "status", "deployment/halcyon", "--timeout=120s", namespace=SYSTEM)
        assert difference is None
    finally:
        run("kubectl delete -k manifests/overlays/cluster --ignore-not-found --wait=false", bare, limit_s=LIMIT_S)
