"""An HPA of somebody else on the Deployment that Halcyon makes: real API server and real HPA controller, KWOK's pods.

The controller lifts a count below an HPA's minReplicas without any metric.
"""

import asyncio
import uuid

import pytest

from halcyon.api.documents.observation_report import AUDIENCE
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Kind
from tests.integration.autoscaling.test_direct_scaling import SCALING as RULES
from tests.integration.autoscaling.test_direct_scaling import Agent, record
from tests.integration.operator.test_leader_election import token
from tests.integration.operator_process import Operator
from tests.integration.operator_space import Space
from tests.integration.waiting import always, rested, until

PAST_A_SYNC_S = 20.0
"""The controller looks every 15 s."""
STEADY = {"maxReplicas": 6, "actuator": "Direct"}


def autoscaler(least: int, name: str = "theirs", target: Kind = kinds.DEPLOYMENT) -> Object:
    """What `kubectl autoscale deployment m-a` makes; or one on the ModelDeployment."""
    scaled = "m-a" if target is kinds.DEPLOYMENT else "m"
    return {
        "apiVersion": kinds.HPA.api_version,
        "kind": kinds.HPA.kind,
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": target.api_version, "kind": target.kind, "name": scaled},
            "minReplicas": least,
            "maxReplicas": 6,
        },
    }


def of_keda(least: int, target: Kind) -> Object:
    """What KEDA makes of ScaledObject `m`; a stand-in for it, which is in test_keda."""
    hpa = autoscaler(least, "keda-hpa-m", target)
    owner = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "m", "uid": str(uuid.uuid4())}
    hpa["metadata"]["ownerReferences"] = [owner | {"controller": True, "blockOwnerDeletion": True}]
    return hpa


def count(space: Space) -> tuple[int, int]:
    """(of the ModelDeployment, of the Deployment)."""
    model, servers = space.must(kinds.MODEL_DEPLOYMENT, "m"), space.must(kinds.DEPLOYMENT, "m-a")
    return model["spec"]["replicas"], servers["spec"]["replicas"]


def generation(space: Space) -> int:
    """How often the Deployment was written."""
    number: int = space.must(kinds.DEPLOYMENT, "m-a")["metadata"]["generation"]
    return number


@pytest.mark.parametrize(
    ("spec", "counts"),
    [({"scaling": STEADY}, (3, 3)), ({"replicas": 1}, (1, 3))],
    ids=["scaled by Halcyon", "a fixed count"],
)
def test_an_external_hpa_is_named_and_keeps_the_replicas(
    operator: Operator, space: Space, spec: dict[str, object], counts: tuple[int, int]
) -> None:
    operator.wait_ready()
    space.serve(**spec)
    space.apply(autoscaler(3))

    message = space.wait_condition("AutoscalerConflict", "True", "ExternalAutoscaler", limit_s=40)
    assert message == (
        "HorizontalPodAutoscaler theirs scales Deployment m-a, which Halcyon manages for this "
        "ModelDeployment; Halcyon has stopped scaling the model. Delete the HPA, or set its target to "
        "ModelDeployment m"
    )
    until(lambda: count(space), lambda current: current == counts, goal="its count is in force", limit_s=40)
    # Who undid the other's writes would show within one look of its controller.
    written = rested(lambda: generation(space), for_s=3)
    always(
        lambda: (count(space), generation(space)),
        lambda current: current == (counts, written),
        goal="nobody fights",
        for_s=PAST_A_SYNC_S,
    )

    space.delete(kinds.HPA, "theirs")
    until(lambda: conflict(space), lambda condition: condition is None, goal="the conflict is over", limit_s=15)
    # What the other has set stays where the count is Halcyon's; what a user has declared counts again.
    after = (counts[0], counts[0])
    until(lambda: count(space), lambda current: current == after, goal="the count after it", limit_s=15)
    always(lambda: count(space), lambda current: current == after, goal="no hand-over moves it", for_s=3)


def test_an_hpa_on_the_balancers_keeps_its_replicas_and_is_named(operator: Operator, space: Space) -> None:
    def balancers() -> tuple[int, int]:
        """(replicas, how often the Deployment was written)."""
        deployment = space.must(kinds.DEPLOYMENT, "m-balancer")
        return deployment["spec"]["replicas"], deployment["metadata"]["generation"]

    operator.wait_ready()
    space.serve()
    theirs = autoscaler(4)
    theirs["spec"]["scaleTargetRef"]["name"] = "m-balancer"
    space.apply(theirs)
    message = "spec.traffic.balancerReplicas is 2, but HorizontalPodAutoscaler theirs scales Deployment m-balancer to 4"
    until(lambda: space.condition("FieldIgnored")[2], lambda text: message in text, goal="it is named", limit_s=40)
    # The condition may be written before the Deployment, whose annotation of the applied state counts in generation.
    written = rested(balancers, for_s=3)
    assert written[0] == 4
    always(balancers, lambda current: current == written, goal="nobody fights", for_s=PAST_A_SYNC_S)
    assert conflict(space) is None, "Halcyon still scales the servers"

    space.delete(kinds.HPA, "theirs")
    until(
        lambda: balancers()[0], lambda replicas: replicas == 2, goal="the spec's number is in force again", limit_s=15
    )


@pytest.mark.parametrize(
    ("target", "scales"),
    [
        (kinds.MODEL_DEPLOYMENT, "this ModelDeployment"),
        (kinds.DEPLOYMENT, "Deployment m-a, which Halcyon manages for this ModelDeployment"),
    ],
    ids=["the ModelDeployment", "the Deployment"],
)
async def test_a_scaled_object_is_named_and_keeps_the_replicas(
    operator: Operator, space: Space, target: Kind, scales: str
) -> None:
    operator.wait_ready()
    space.serve(scaling=RULES)
    space.apply(of_keda(2, target))

    message = space.wait_condition("AutoscalerConflict", "True", "ExternalAutoscaler", limit_s=40)
    assert message.startswith(
        f"HorizontalPodAutoscaler keda-hpa-m of ScaledObject m scales {scales}; Halcyon has stopped scaling the model."
    )
    async with Agent(operator, space, token(space, "m-balancer", AUDIENCE)) as stream:
        for _ in range(12):
            # By the rules that is 5 at once; the other lifts it to 2 when it looks.
            await stream.send_str(record(space, queued=48))
            await asyncio.sleep(0.5)
            assert count(space)[0] <= 2
    assert conflict(space)


def conflict(space: Space) -> Object | None:
    """The condition, where it is there."""
    conditions = space.status().get("conditions") or ()
    return next((c for c in conditions if c["type"] == "AutoscalerConflict"), None)
