"""Commands that a page shows one by one, with words for the reader's own names, on a model that is served.

Each ends well, and prints what its page shows. Blocks of `sh` are `test_guides`'.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo import models, setup
from demo.kube import Kube, wait_for
from demo.models import REPOSITORY
from e2e.guides import outcome, reader
from e2e.guides.conftest import environment, run, run_steps
from e2e.guides.elsewhere import reason
from e2e.guides.reader import NAMESPACE
from e2e.shown_output import Step, console_steps

LIMIT_S = 120
METRIC = "desiredreplicas"
READERS_FILES = {
    "rendered.yaml": "build/rendered.yaml",
    "model.yaml": "manifests/examples/minimal.yaml",
    "digits.yaml": "manifests/examples/digits.yaml",
    "observations.json": "manifests/examples/observations.json",
}
"""Files of this repository, and one that the tests render, in place of the reader's own."""
SHOWN = [
    (page, step)
    for page in [*sorted((REPOSITORY / "docs").rglob("*.md")), REPOSITORY / "README.md"]
    for step in console_steps(page)
    if reason(step.script) is None
]
_FILTER = re.compile(r"\s*\| grep .*$")
"""Filter of an output whose lines may be absent in a healthy cluster."""


@pytest.fixture(scope="module")
def served(kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    """Serve the model `digits`, with an earlier revision, in a namespace of its own, the default of the yielded kubeconfig."""
    kube("create", "namespace", NAMESPACE)
    rendered = REPOSITORY / READERS_FILES["rendered.yaml"]
    rendered.parent.mkdir(exist_ok=True)
    rendered.write_text(kube.helm("template", "halcyon", str(setup.CHART), "--set=images.registry=localhost"))
    config = tmp_path_factory.mktemp("reader") / "kubeconfig"
    config.write_bytes(kube.kubeconfig.read_bytes())
    config.chmod(0o600)
    reader_kube = Kube(kubeconfig=config, programs=kube.programs, namespace=NAMESPACE, reachable=True)
    reader_kube("config", "set-context", "--current", f"--namespace={NAMESPACE}")
    try:
        documents = models.documents()
        documents["ModelDeployment"]["spec"]["scaling"] = {"minReplicas": 1, "maxReplicas": 6}  # by the planner
        reader_kube.apply(*documents.values())
        models.wait_until_served(reader_kube, "digits", replicas=1)
        reader_kube("patch", "mdep", "digits", "--type=merge", "-p", 'spec: {model: {parameters: {gpu_ms: "4"}}}')
        run("halcyon status digits --watch", reader_kube, limit_s=LIMIT_S)
        wait_for(
            lambda: reader_kube.external_metric("digits", METRIC) is not None, goal="the planner's metric", limit_s=30
        )
        yield reader_kube
    finally:
        models.delete(reader_kube, "digits")
        kube("delete", "namespace", NAMESPACE, "--wait=false")


def named(command: str, kube: Kube) -> str:
    """Return the command with this model's names."""
    pod = kube.pods("digits", "server")[0]["metadata"]["name"]
    words = {
        "POD": pod,
        "VERB RESOURCE.GROUP": "list modeldeployments.serving.halcyon.dev",
        "ADDRESS:8000": kube.must_address("digits", models.HTTP_PORT),
        "ADDRESS:8001": kube.must_address("digits", models.GRPC_PORT),
    }
    command = reader.named(command)
    for word, name in words.items():
        command = re.sub(rf"\b{re.escape(word)}\b", name, command)
    for word, file in READERS_FILES.items():
        command = re.sub(rf"(?<![\w/.-]){re.escape(word)}\b", file, command)
    return _FILTER.sub("", command)


@pytest.mark.parametrize(
    ("page", "step"), [pytest.param(page, step, id=f"{page.stem}: {step.script}") for page, step in SHOWN]
)
def test_a_command_prints_what_its_page_shows(page: Path, step: Step, served: Kube) -> None:
    (printed,) = run_steps([named(step.script, served)], environment(served), limit_s=LIMIT_S)
    comparison = outcome.compare(step, printed)
    outcome.record(page, {step.script: comparison})
    assert comparison.difference is None
