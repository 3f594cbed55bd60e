"""Workloads of the fault campaigns: when a step is over."""

from typing import Any

import pytest

from halcyon.kube import kinds
from tests.faults.workloads import balanced


class Served:
    """A namespace whose model is served, with one Deployment of balancers."""

    def __init__(self, deployment: dict[str, Any]) -> None:
        self._deployment = deployment

    def settled(self) -> bool:
        """Return True, since the model is served."""
        return True

    def must(self, kind: object, name: str) -> dict[str, Any]:
        """Return the Deployment."""
        assert (kind, name) == (kinds.DEPLOYMENT, "m-balancer")
        return self._deployment


@pytest.mark.parametrize(
    ("observed", "updated", "over"),
    [(2, 2, True), (1, 2, False), (2, 1, False)],
    ids=["all are of the template", "the template is newer than the status", "one is of the former template"],
)
def test_rotated_secrets_wait_for_balancers_of_the_template(observed: int, updated: int, *, over: bool) -> None:
    status = {"observedGeneration": observed, "replicas": 2, "updatedReplicas": updated, "readyReplicas": 2}
    space: Any = Served({"metadata": {"generation": 2}, "spec": {"replicas": 2}, "status": status})
    assert balanced(space) is over
