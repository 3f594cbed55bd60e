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
from e2e.blocks import commands
from e2e.guides.conftest import run

PAGE = REPOSITORY / "docs" / "guides" / "install.md"
PUSH, INSTALL, TEST, CRDS, NAMESPACED, UPGRADE, REMOVE, DELETE_MODELS, REMOVE_TOO, DELETE_CRD, KUSTOMIZE = commands(
    PAGE
)
EXAMPLE = str(REPOSITORY / "manifests" / "examples" / "digits.yaml")
VALUES = "build/images-values.yaml"
LIMIT_S = 240
CRD = "modeldeployments.serving.halcyon.dev"


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make images push` writes, for images that are on the node."""
    file = tmp_path_factory.mktemp("values") / "images-values.yaml"
    file.write_text(
        "images: {registry: localhost}\ntest: {image: {registry: localhost, repository: tritonserver-cpu, tag: '24.10'}}\n"
    )
    return file


@pytest.fixture
def bare(kube: Kube) -> Kube:
    """The cluster without Halcyon."""
    for command in (REMOVE, DELETE_CRD):
        run(f"{command.partition('#')[0]} --ignore-not-found", kube, limit_s=LIMIT_S)
    return kube


def there(kube: Kube, what: str, *, namespace: str = SYSTEM) -> bool:
    return bool(kube("get", what, "--ignore-not-found", "-o", "name", namespace=namespace).strip())


def test_the_push_is_the_one_that_readme_has() -> None:
    assert PUSH in (REPOSITORY / "README.md").read_text()


def test_install_test_upgrade_remove_and_end_everything(bare: Kube, values: Path) -> None:
    assert REMOVE == REMOVE_TOO
    assert UPGRADE in commands(PAGE.with_name("upgrade.md"))
    for command in (INSTALL, TEST, UPGRADE):
        assert VALUES in command or command is TEST
        run(command.replace(VALUES, str(values)), bare, limit_s=LIMIT_S)
    assert not there(bare, "modeldeployments"), "helm test leaves nothing"
    bare("apply", "-f", EXAMPLE)
    models.wait_until_served(bare, "digits", replicas=1)
    serving = {pod["metadata"]["uid"] for pod in bare.pods("digits", "server")}

    run(REMOVE, bare, limit_s=LIMIT_S)
    assert not there(bare, "deployment/halcyon")
    assert {pod["metadata"]["uid"] for pod in bare.pods("digits", "server")} == serving
    assert bare.model("digits") is not None

    run(INSTALL.replace(VALUES, str(values)), bare, limit_s=LIMIT_S)
    models.wait_until_served(bare, "digits", replicas=1)
    assert {pod["metadata"]["uid"] for pod in bare.pods("digits", "server")} == serving

    for command in (DELETE_MODELS, REMOVE_TOO, DELETE_CRD):
        run(command, bare, limit_s=LIMIT_S)
    with pytest.raises(DemoError, match="NotFound"):
        bare("get", "crd", CRD)
    bare("wait", "--for=delete", "pod", "-l", "serving.halcyon.dev/model-deployment=digits", "--timeout=90s")
    bare("delete", "-f", EXAMPLE, "--ignore-not-found")


def test_in_listed_namespaces(bare: Kube, values: Path) -> None:
    for namespace in ("team-a", "team-b"):
        bare("create", "namespace", namespace)
    try:
        run(CRDS, bare, limit_s=LIMIT_S)
        run(NAMESPACED.replace(VALUES, str(values)), bare, limit_s=LIMIT_S)
        bare("rollout", "status", "deployment/halcyon", "--timeout=120s", namespace="halcyon-team")
        told = json.loads(
            bare("get", "clusterroles,clusterrolebindings", "-l", "app.kubernetes.io/instance=halcyon", "-o", "json")
        )
        assert told["items"] == []
    finally:
        bare.helm("uninstall", "halcyon", "--namespace=halcyon-team", "--ignore-not-found")
        bare.helm("uninstall", "halcyon-crds", "--ignore-not-found")
        bare("delete", "namespace", "team-a", "team-b", "halcyon-team", "--wait=false")


def test_with_kustomize(bare: Kube) -> None:
    try:
        run(KUSTOMIZE.replace("YOUR.REGISTRY/PATH", "localhost"), bare, limit_s=LIMIT_S)
        bare("rollout", "status", "deployment/halcyon", "--timeout=120s", namespace=SYSTEM)
    finally:
        run("kubectl delete -k manifests/overlays/cluster --ignore-not-found --wait=false", bare, limit_s=LIMIT_S)
