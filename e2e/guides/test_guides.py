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


def steps_to_run(page: Path) -> list[Step]:
    """Return the page's blocks that run in this cluster."""
    return [step for step in steps(page) if elsewhere.entry(step, elsewhere.BLOCKS) is None]


PAGES = [page for page in dict.fromkeys([DOCS / "quickstart.md", *sorted(DOCS.rglob("*.md"))]) if steps_to_run(page)]
WITHOUT_CLUSTER = [page for page in PAGES if str(page.relative_to(REPOSITORY)) in elsewhere.WITHOUT_CLUSTER]
IN_CLUSTER = [page for page in PAGES if page not in WITHOUT_CLUSTER]


def remaining_objects(kube: Kube) -> list[str]:
    """Return the objects that a page has created in `default` and not deleted."""
    kinds = "modeldeployments,deployments,services,configmaps,persistentvolumeclaims,resourcequotas,secrets,jobs,hpa"
    names = kube("get", kinds, "-o", "name").split()
    return [name for name in names if name not in {"service/kubernetes", "configmap/kube-root-ca.crt"}]


@pytest.mark.parametrize("page", IN_CLUSTER, ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page: Path, kube: Kube) -> None:
    try:
        differences = run_page(page, environment(kube))
        assert remaining_objects(kube) == []
        assert differences == []
    finally:
        models.delete(kube, *kube("get", "modeldeployments", "-o", "jsonpath={.items[*].metadata.name}").split())


@pytest.mark.parametrize("page", WITHOUT_CLUSTER, ids=lambda page: page.stem)
def test_a_page_without_a_cluster_does_what_it_says(page: Path) -> None:
    assert run_page(page, without_cluster()) == []


def run_page(page: Path, shell: Mapping[str, str]) -> list[tuple[str, str]]:
    """Run the page's blocks, record what they printed, and return those whose output isn't the shown one."""
    page_steps = steps_to_run(page)
    printed = run_steps([step.script for step in page_steps], shell, limit_s=LIMIT_S)
    outcomes = [outcome.compare(step, output) for step, output in zip(page_steps, printed, strict=True)]
    outcome.record(page, dict(zip((step.script for step in page_steps), outcomes, strict=True)))
    return [
        (step.name, comparison.difference)
        for step, comparison in zip(page_steps, outcomes, strict=True)
        if comparison.difference
    ]
