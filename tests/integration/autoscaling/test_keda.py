"""The real KEDA beside Halcyon: it holds the metrics API, scales a ModelDeployment by a ScaledObject, or finds that Halcyon does.

Real: the API server, its HPA controller, KEDA's operator and metrics server, and the web server that its scaler asks. Pods are
KWOK's, and the agent is imitated.
"""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from e2e import keda
from e2e.cluster.cluster import Cluster
from e2e.keda import SCALED_OBJECT, Keda
from halcyon.api.documents.observation_report import AUDIENCE
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from tests.integration.autoscaling.test_direct_scaling import SCALING as RULES
from tests.integration.autoscaling.test_direct_scaling import Agent, record, until_then
from tests.integration.autoscaling.test_external_hpa import conflict, count
from tests.integration.operator.test_leader_election import token
from tests.integration.operator_process import Operator
from tests.integration.operator_space import Object, Space
from tests.integration.real_prometheus import served
from tests.integration.waiting import until

pytestmark = pytest.mark.keda

LOOKED_S = 40
"""Halcyon looks every 30 s who has the metrics API; KEDA makes its HPA at once, and the controller asks every 15 s."""
SHARE = 10
"""Of what waits, a replica's."""


@dataclass
class Queue:
    """What the web server says: how much waits."""

    url: str = ""
    waiting: int = 0

    def __call__(self, _path: str, _headers: object) -> tuple[int, str]:
        return 200, json.dumps({"waiting": self.waiting})


@pytest.fixture
def queue() -> Iterator[Queue]:
    queue = Queue()
    with served(queue) as address:
        queue.url = f"http://{address}/"
        yield queue


@pytest.fixture(scope="module")
def beside(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keda]:
    with keda.running(cluster, tmp_path_factory.mktemp("keda")) as running:
        yield running


@dataclass
class Theirs:
    """ScaledObject `theirs`, by what the web server says."""

    space: Space
    queue: Queue
    keda: Keda

    @property
    def path(self) -> str:
        return SCALED_OBJECT.path(self.space.namespace, "theirs")

    def make(self, target: Kind, least: int) -> None:
        scaled = "m" if target is kinds.MODEL_DEPLOYMENT else "m-a"
        asks = {"url": self.queue.url, "valueLocation": "waiting", "targetValue": str(SHARE)}
        document: Object = {
            "apiVersion": SCALED_OBJECT.api_version,
            "kind": SCALED_OBJECT.kind,
            "metadata": {"name": "theirs"},
            "spec": {
                "scaleTargetRef": {"apiVersion": target.api_version, "kind": target.kind, "name": scaled},
                "minReplicaCount": least,
                "maxReplicaCount": 6,
                "pollingInterval": 1,
                "cooldownPeriod": 3,
                # Else the HPA wants for five minutes what it wanted once.
                "advanced": {
                    "horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}
                },
                "triggers": [{"type": "metrics-api", "metadata": asks}],
            },
        }
        self.space.api.create(SCALED_OBJECT.path(self.space.namespace), document)

    def end(self) -> None:
        """Until KEDA has finished it, and its HPA is gone."""
        self.space.api.call("DELETE", self.path)
        until(
            lambda: (self.space.api.exists(self.path), self.space.get(kinds.HPA, "keda-hpa-theirs")),
            lambda remaining: remaining == (False, None),
            goal="KEDA lets go",
            limit_s=LOOKED_S,
            context=self.keda.log_tail,
        )


@pytest.fixture
def theirs(space: Space, queue: Queue, beside: Keda) -> Iterator[Theirs]:
    scaled_object = Theirs(space, queue, beside)
    yield scaled_object
    scaled_object.end()


async def test_models_are_scaled_directly_while_keda_owns_the_metrics_api(
    operator: Operator,
    space: Space,
    beside: Keda,  # noqa: ARG001  # it runs
) -> None:
    operator.wait_ready()
    space.serve(scaling={**RULES, "actuator": "Auto"})
    # Before KEDA came nobody had it.
    scaling = until(
        lambda: space.status().get("scaling") or {},
        lambda scaling: f"{keda.NAMESPACE}/{keda.SERVICE}" in scaling.get("actuatorReason", ""),
        goal="it says who has the API",
        limit_s=LOOKED_S,
    )
    assert scaling["actuator"] == "Direct"
    async with Agent(operator, space, token(space, "m-balancer", AUDIENCE)) as stream:
        await until_then(space, 5, stream, queued=48)
    assert space.get(kinds.HPA, "m") is None


def test_keda_scales_a_model_left_to_it_to_zero_and_back(operator: Operator, space: Space, theirs: Theirs) -> None:
    operator.wait_ready()
    space.serve()
    theirs.queue.waiting = 48
    theirs.make(kinds.MODEL_DEPLOYMENT, 0)

    def reaches(pods: int) -> None:
        until(
            lambda: count(space),
            lambda counts: counts == (pods, pods),
            goal=f"the count is {pods}",
            limit_s=LOOKED_S,
            context=theirs.keda.log_tail,
        )
        space.wait_settled()

    reaches(5)
    assert space.condition("ScalingActive")[:2] == ("True", "FixedReplicas")
    theirs.queue.waiting = 0
    reaches(0)
    theirs.queue.waiting = 15
    reaches(2)
    assert conflict(space) is None


@pytest.mark.parametrize(
    ("target", "scales"),
    [
        (kinds.MODEL_DEPLOYMENT, "this ModelDeployment"),
        (kinds.DEPLOYMENT, "Deployment m-a, which Halcyon manages for this ModelDeployment"),
    ],
    ids=["the ModelDeployment", "the Deployment"],
)
async def test_a_competing_scaled_object_is_named_and_left_alone_until_it_goes(
    operator: Operator, space: Space, theirs: Theirs, target: Kind, scales: str
) -> None:
    operator.wait_ready()
    space.serve(scaling=RULES)
    theirs.queue.waiting = 2 * SHARE
    theirs.make(target, 1)

    message = await asyncio.to_thread(
        space.wait_condition, "AutoscalerConflict", "True", "ExternalAutoscaler", limit_s=LOOKED_S
    )
    assert message.startswith(
        f"HorizontalPodAutoscaler keda-hpa-theirs of ScaledObject theirs scales {scales}; Halcyon has stopped scaling the model."
    )
    async with Agent(operator, space, token(space, "m-balancer", AUDIENCE)) as stream:
        theirs_count = 0
        end = asyncio.get_running_loop().time() + 2 * LOOKED_S
        while theirs_count != 2:
            # By Halcyon's rules that is 5 at once; by KEDA's it is 2.
            assert asyncio.get_running_loop().time() < end, (count(space), theirs.keda.log_tail())
            await stream.send_str(record(space, queued=48))
            await asyncio.sleep(0.5)
            theirs_count = count(space)[target is kinds.DEPLOYMENT]
            assert theirs_count <= 2
        assert conflict(space)
        await asyncio.to_thread(theirs.end)
        # Nobody else is there: it is Halcyon's again.
        await until_then(space, 5, stream, queued=48)
    assert conflict(space) is None
