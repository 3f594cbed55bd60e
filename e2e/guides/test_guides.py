"""The pages of docs/ as a reader runs them: each page's shell blocks, in order, in one shell, on a cluster with the chart and no model.

Each block's output is compared with the one that the page shows. Each page ends by deleting what it has made: that is looked at,
too. Blocks that are not run here are listed in `elsewhere`, with the test that runs them or the reason.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from demo import models
from demo.kube import Kube
from demo.models import REPOSITORY
from e2e.guides import elsewhere, outcome
from e2e.guides.conftest import environment, run_steps, without_cluster
from e2e.shown_output import Step, steps

DOCS = REPOSITORY / "docs"
LIMIT_S = 400


def here(page: Path) -> list[Step]:
    """Return the page's blocks that run in this cluster."""
    return [step for step in steps(page) if elsewhere.entry(step, elsewhere.BLOCKS) is None]


PAGES = [page for page in dict.fromkeys([DOCS / "quickstart.md", *sorted(DOCS.rglob("*.md"))]) if here(page)]
WITHOUT_CLUSTER = [page for page in PAGES if str(page.relative_to(REPOSITORY)) in elsewhere.WITHOUT_CLUSTER]
IN_CLUSTER = [page for page in PAGES if page not in WITHOUT_CLUSTER]


def left(kube: Kube) -> list[str]:
    """What a page has made in `default` and not deleted."""
    kinds = "modeldeployments,deployments,services,configmaps,persistentvolumeclaims,resourcequotas,secrets,jobs,hpa"
    told = kube("get", kinds, "-o", "name").split()
    return [name for name in told if name not in {"service/kubernetes", "configmap/kube-root-ca.crt"}]


@pytest.mark.parametrize("page", IN_CLUSTER, ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page: Path, kube: Kube) -> None:
    try:
        differences = run_page(page, environment(kube))
        assert left(kube) == []
        assert differences == []
    finally:
        models.delete(kube, *kube("get", "modeldeployments", "-o", "jsonpath={.items[*].metadata.name}").split())


@pytest.mark.parametrize("page", WITHOUT_CLUSTER, ids=lambda page: page.stem)
def test_a_page_without_a_cluster_does_what_it_says(page: Path) -> None:
    assert run_page(page, without_cluster()) == []


def run_page(page: Path, shell: Mapping[str, str]) -> list[tuple[str, str]]:
    """Run the page's blocks, record what they printed, and return those whose output isn't the shown one."""
    there = here(page)
    printed = run_steps([step.script for step in there], shell, limit_s=LIMIT_S)
    found = [outcome.of(step, output) for step, output in zip(there, printed, strict=True)]
    outcome.record(page, dict(zip((step.script for step in there), found, strict=True)))
    return [(step.name, one.difference) for step, one in zip(there, found, strict=True) if one.difference]
