"""The pages of docs/ as a reader runs them: each page's shell blocks, in order, in one shell, on a cluster with the chart and no model.

Each page ends by deleting what it has made: that is looked at, too. What a page can't run here isn't in a block of `sh`.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e import interrupts
from e2e.blocks import blocks
from e2e.demo import models, setup
from e2e.demo.kube import Kube
from e2e.demo.models import REPOSITORY

NAME = "guides"
DOCS = REPOSITORY / "docs"
PAGES = [
    page
    for page in [DOCS / "quickstart.md", DOCS / "troubleshooting.md", *sorted((DOCS / "guides").glob("*.md"))]
    if blocks(page, "sh")
]
LIMIT_S = 400


@pytest.fixture(scope="module")
def kube() -> Iterator[Kube]:
    try:
        with interrupts.heeded():
            yield setup.install(NAME, step=lambda title: print(f"guides: {title}", flush=True)).kube
    finally:
        setup.remove(NAME, step=lambda title: print(f"guides: {title}", flush=True))


def left(kube: Kube) -> list[str]:
    """What a page has made in `default` and not deleted."""
    kinds = "modeldeployments,deployments,services,configmaps,persistentvolumeclaims,resourcequotas,secrets,jobs,hpa"
    told = kube("get", kinds, "-o", "name").split()
    return [name for name in told if name not in {"service/kubernetes", "configmap/kube-root-ca.crt"}]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page: Path, kube: Kube, tmp_path: Path) -> None:
    script = tmp_path / "page.sh"
    script.write_text("set -euo pipefail\n" + "\n".join(blocks(page, "sh")))
    path = f"{kube.programs}:{REPOSITORY / '.venv' / 'bin'}:{os.environ['PATH']}"
    try:
        done = subprocess.run(
            ["bash", "-v", str(script)],
            cwd=REPOSITORY,
            env={**os.environ, "PATH": path, "KUBECONFIG": str(kube.kubeconfig)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        assert done.returncode == 0, done.stdout[-6000:]
        assert left(kube) == []
    finally:
        models.delete(kube, *kube("get", "modeldeployments", "-o", "jsonpath={.items[*].metadata.name}").split())
