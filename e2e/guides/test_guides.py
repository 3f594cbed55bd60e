"""The pages of docs/ as a reader runs them: each page's shell blocks, in order, in one shell, on a cluster with the chart and no model.

Each page ends by deleting what it has made: that is looked at, too. What a page can't run here isn't in a block of `sh`.
"""

from pathlib import Path

import pytest

from demo import models
from demo.kube import Kube
from demo.models import REPOSITORY
from e2e.blocks import blocks
from e2e.guides.conftest import run

DOCS = REPOSITORY / "docs"
PAGES = [page for page in dict.fromkeys([DOCS / "quickstart.md", *sorted(DOCS.rglob("*.md"))]) if blocks(page, "sh")]
LIMIT_S = 400


def left(kube: Kube) -> list[str]:
    """What a page has made in `default` and not deleted."""
    kinds = "modeldeployments,deployments,services,configmaps,persistentvolumeclaims,resourcequotas,secrets,jobs,hpa"
    told = kube("get", kinds, "-o", "name").split()
    return [name for name in told if name not in {"service/kubernetes", "configmap/kube-root-ca.crt"}]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page: Path, kube: Kube) -> None:
    try:
        run("\n".join(blocks(page, "sh")), kube, limit_s=LIMIT_S)
        assert left(kube) == []
    finally:
        models.delete(kube, *kube("get", "modeldeployments", "-o", "jsonpath={.items[*].metadata.name}").split())
