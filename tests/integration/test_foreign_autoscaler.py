"""An HPA of somebody else on the Deployment that Halcyon makes: real API server and real HPA controller, KWOK's pods.

The controller lifts a count below an HPA's minReplicas without any metric.
"""

import pytest

from halcyon.control import kinds
from halcyon.control.client import Object
from tests.integration.operator_process import Operator
from tests.integration.operator_space import Space
from tests.integration.waiting import always, rested, until

PAST_A_SYNC_S = 20.0
"""The controller looks every 15 s."""
STEADY = {"maxReplicas": 6, "actuator": "Direct"}


def autoscaler(least: int) -> Object:
    """What `kubectl autoscale deployment m-a` makes."""
    return {
        "apiVersion": kinds.HPA.api_version,
        "kind": kinds.HPA.kind,
        "metadata": {"name": "theirs"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "m-a"},
            "minReplicas": least,
            "maxReplicas": 6,
        },
    }


def count(space: Space) -> tuple[int, int]:
    """(of the ModelDeployment, of the Deployment)."""
    model, servers = space.must(kinds.MODEL_DEPLOYMENT, "m"), space.must(kinds.DEPLOYMENT, "m-a")
    return model["spec"]["replicas"], servers["spec"]["replicas"]


def generation(space: Space) -> int:
    """How often the Deployment was written."""
    found: int = space.must(kinds.DEPLOYMENT, "m-a")["metadata"]["generation"]
    return found


@pytest.mark.parametrize(
    ("spec", "counts"),
    [({"scaling": STEADY}, (3, 3)), ({"replicas": 1}, (1, 3))],
    ids=["scaled by Halcyon", "a fixed count"],
)
def test_it_is_named_and_left_the_count(
    operator: Operator, space: Space, spec: dict[str, object], counts: tuple[int, int]
) -> None:
    operator.wait_ready()
    space.serve(**spec)
    space.apply(autoscaler(3))

    message = space.wait_condition("AutoscalerConflict", "True", "ForeignAutoscaler", limit_s=40)
    assert message == (
        "HorizontalPodAutoscaler theirs scales Deployment m-a, whose pods are this ModelDeployment's; Halcyon leaves the count "
        "alone. Delete it, or let it scale ModelDeployment m"
    )
    until(lambda: count(space), lambda found: found == counts, what="its count is in force", limit_s=40)
    # Who undid the other's writes would show within one look of its controller.
    written = rested(lambda: generation(space), for_s=3)
    always(
        lambda: (count(space), generation(space)),
        lambda found: found == (counts, written),
        what="nobody fights",
        for_s=PAST_A_SYNC_S,
    )

    space.delete(kinds.HPA, "theirs")
    until(lambda: conflict(space), lambda found: found is None, what="the conflict is over", limit_s=15)
    # What the other has set stays where the count is Halcyon's; what a user has declared counts again.
    after = (counts[0], counts[0])
    until(lambda: count(space), lambda found: found == after, what="the count after it", limit_s=15)
    always(lambda: count(space), lambda found: found == after, what="no hand-over moves it", for_s=3)


def conflict(space: Space) -> Object | None:
    """The condition, where it is there."""
    found = space.status().get("conditions") or ()
    return next((c for c in found if c["type"] == "AutoscalerConflict"), None)
