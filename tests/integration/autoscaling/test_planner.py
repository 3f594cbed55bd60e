"""The policy Planner: what agents stream becomes a decision, /scale, the status, and the metric that an HPA reads.

The agent is imitated: a WebSocket client with a token of the balancer's ServiceAccount, and a Triton that computes a batch of b
in 80 + 6 b ms. API server, TokenReview, TLS and the operator are real; the pods that it speaks of are KWOK's.
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Self

import aiohttp
import pytest

from e2e.cluster.cluster import Cluster
from halcyon.api.documents.observation_report import AUDIENCE, AgentReport, BalancerSample, BatchStats, PodSample
from halcyon.kube import kinds
from tests.integration.autoscaling.test_direct_scaling import Agent
from tests.integration.operator.test_leader_election import token
from tests.integration.operator_process import Operator
from tests.integration.operator_space import Space
from tests.integration.versions import keeps_tolerance
from tests.integration.waiting import PATIENCE, always, until

pytestmark = pytest.mark.more

BATCH = 8
FULL_S = 0.128
BEAT_S = 0.25
DIRECT = {"maxReplicas": 9, "actuator": "Direct", "targets": {"latency": "500ms"}}


@pytest.fixture(scope="module")
def operator(operator: Operator) -> Operator:
    operator.wait_ready()
    return operator


class Load:
    """Requests at a rate, and the records that an agent would send of them, until it is closed."""

    def __init__(self, operator: Operator, space: Space) -> None:
        self._operator, self._space = operator, space
        self._pod = self._pods()[1]
        self._agent = self._agent_of(self._pod)
        self._requests = 0.0
        self.rate = 0.0
        self.waiting = 0

    async def __aenter__(self) -> Self:
        stream = await self._agent.__aenter__()
        self._sending = asyncio.ensure_future(self._send(stream))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._sending.cancel()
        await asyncio.gather(self._sending, return_exceptions=True)
        await self._agent.__aexit__()

    async def _send(self, stream: aiohttp.ClientWebSocketResponse) -> None:
        self._counted = time.time()
        while True:
            pods, balancer = await asyncio.to_thread(self._pods)
            if balancer != self._pod:
                # Replicas of the tests have ports of their own, so a new leader replaces the balancers.
                await self._agent.__aexit__()
                self._pod, self._agent = balancer, self._agent_of(balancer)
                stream = await self._agent.__aenter__()
            await stream.send_str(self._record(pods, balancer))
            await asyncio.sleep(BEAT_S)

    def _agent_of(self, pod: str) -> Agent:
        return Agent(self._operator, self._space, token(self._space, "m-balancer", AUDIENCE, pod=pod))

    def _pods(self) -> tuple[list[str], str]:
        """Names of the servers that run, and of the balancer."""
        pods = [p for p in self._space.every(kinds.POD) if p["status"].get("podIP")]
        names = [str(p["metadata"]["name"]) for p in pods]
        left = {p["metadata"]["name"] for p in pods if p["metadata"].get("deletionTimestamp")}
        balancer = min(name for name in names if name.startswith("m-balancer-") and name not in left)
        return [name for name in names if name.startswith("m-a-")], balancer

    def _record(self, pods: list[str], sender: str) -> str:
        # By the time that passed: on a busy machine a beat takes longer, and the rate is to be what was asked for.
        now = time.time()
        last, self._counted = self._counted, now
        self._requests += self.rate * (now - last)
        done = int(self._requests)
        ran = done // BATCH // max(len(pods), 1)
        single = (1, 1, 86_000)
        sizes = (single, (BATCH, ran, int(ran * FULL_S * 1e6))) if ran else (single,)
        stats = BatchStats(now, sizes) if done else None
        samples = tuple(
            PodSample(pod, "ready", now, pending=0, succeeded=done, failed=0, rows=done, executions=ran, batches=stats)
            for pod in pods
        )
        balancer = BalancerSample(self.waiting, self.waiting, done, rejected=0, errors=0)
        return AgentReport(self._space.namespace, "m", sender, now, balancer, samples).to_json()


async def reached(read: Callable[[], Any], good: Callable[[Any], bool], *, goal: str, limit_s: float = 25.0) -> Any:
    """`until`, while the load goes on beside it."""
    return await asyncio.to_thread(until, read, good, goal=goal, limit_s=limit_s)


async def learnt(space: Space) -> None:
    """Until the planner knows what one replica can do."""
    await reached(lambda: scaling_of(space).get("why"), lambda why: "per replica" in str(why), goal="capacity is known")


def scaling_of(space: Space) -> dict[str, Any]:
    scaling: dict[str, Any] = space.status().get("scaling") or {}
    return scaling


def count(space: Space) -> int:
    replicas: int = space.must(kinds.MODEL_DEPLOYMENT, "m")["spec"]["replicas"]
    return replicas


def newest(space: Space) -> dict[str, Any] | None:
    """The last decision that the status tells."""
    return next(iter(scaling_of(space).get("decisions") or ()), None)


async def test_a_load_is_planned_for_and_explained_in_status_and_event(operator: Operator, space: Space) -> None:
    space.serve(scaling=DIRECT, traffic={"balancerReplicas": 1})
    async with Load(operator, space) as load:
        load.rate = 20
        await learnt(space)
        assert count(space) == 1
        load.rate = 200
        # 8 in 128 ms: 62.5 req/s of each, and less within the latency.
        await reached(lambda: count(space), lambda n: 4 <= n <= 6, goal="the load is planned for")
        await reached(lambda: scaling_of(space).get("desired"), lambda n: n == count(space), goal="the status says so")
        scaling = scaling_of(space)
        assert (scaling["policy"], scaling["actuator"], scaling["mode"]) == ("Planner", "Direct", "Active")
        assert "req/s with" in scaling["why"]
        assert {part["name"] for part in scaling["parts"]} >= {"rate"}
        rate = next(s for s in scaling["signals"] if s["name"] == "requestRate")
        assert rate["proposal"] >= 4
        newest = scaling["decisions"][0]
        assert newest["after"] == scaling["desired"] > newest["before"]
        raised = await reached(
            lambda: [e for e in space.events() if e["reason"] == "ScaledUp"], bool, goal="an event tells of it"
        )
        assert raised[0]["note"].startswith("desired replicas changed from 1 to ")
    at_its_end = count(space)
    message = await asyncio.to_thread(space.wait_condition, "ScalingActive", "False", "MetricsMissing", limit_s=30)
    assert "The number of replicas is not changed" in message
    # What had come by then was planned for.
    held = count(space)
    assert held >= at_its_end
    always(lambda: count(space), lambda n: n == held, goal="the count holds in silence", for_s=2)


async def test_recommend_shows_its_decision_and_leaves_the_replicas_to_people(operator: Operator, space: Space) -> None:
    space.serve(scaling=DIRECT | {"mode": "Recommend"}, traffic={"balancerReplicas": 1})
    async with Load(operator, space) as load:
        load.rate = 200
        await reached(lambda: scaling_of(space).get("desired", 0), lambda n: n >= 4, goal="more is recommended")
        assert count(space) == 1
        space.scale(2)
        message = await asyncio.to_thread(space.wait_condition, "ScalingActive", "False", "Recommending")
        assert message.startswith("spec.scaling.mode is Recommend: the replicas stay at")
        await asyncio.to_thread(always, lambda: count(space), lambda n: n == 2, goal="a person's count stands", for_s=3)


async def test_an_idle_model_goes_to_zero_and_a_request_wakes_it(operator: Operator, space: Space) -> None:
    idle = {"minReplicas": 0, "maxReplicas": 3, "idleTimeout": "10s", "actuator": "Direct"}
    space.serve(scaling=idle, traffic={"balancerReplicas": 1})
    async with Load(operator, space) as load:
        await reached(lambda: count(space), lambda n: n == 0, goal="none is left")
        message = await asyncio.to_thread(space.wait_condition, "Ready", "True", "ScaledToZero")
        assert "0 replicas" in message
        load.waiting = 1
        began = time.monotonic()
        await reached(lambda: count(space), lambda n: n == 1, goal="one comes")
        assert time.monotonic() - began < 5 * PATIENCE
        assert "requests have arrived, and no replica runs" in (await newest_sentence(space))


async def newest_sentence(space: Space) -> str:
    """The newest decision's sentence."""
    decisions = await reached(
        lambda: scaling_of(space).get("decisions") or [], lambda d: d and d[0]["after"] == 1, goal="it is told"
    )
    return str(decisions[0]["why"])


async def test_a_schedule_raises_the_minimum_while_it_is_open(operator: Operator, space: Space) -> None:
    always_open = {"name": "all-day", "start": "* * * * *", "duration": "1h", "minReplicas": 3}
    space.serve(scaling=DIRECT | {"schedules": [always_open]}, traffic={"balancerReplicas": 1})
    async with Load(operator, space) as load:
        load.rate = 10
        await reached(lambda: count(space), lambda n: n == 3, goal="the schedule holds")
        await reached(
            lambda: scaling_of(space).get("limitedBy"), lambda names: "min" in (names or ()), goal="it says so"
        )


@pytest.mark.parametrize(
    ("subresource", "who"),
    [("scale", "another controller or user"), ("", "field manager gitops")],
    ids=["by /scale", "by name"],
)
async def test_a_writer_that_comes_again_and_again_is_named_and_left_alone(
    operator: Operator, space: Space, subresource: str, who: str
) -> None:
    space.serve(scaling=DIRECT, traffic={"balancerReplicas": 1})
    async with Load(operator, space) as load:
        load.rate = 20
        await learnt(space)
        for replicas in (7, 8, 9):
            answer = space.api.call(
                "PATCH",
                kinds.MODEL_DEPLOYMENT.path(space.namespace, "m", subresource) + "?fieldManager=gitops",
                {"spec": {"replicas": replicas}},
                content_type="application/merge-patch+json",
            )
            assert answer.status == 200, answer
            if replicas == 9:
                break
            # Each is to be seen by itself.
            await reached(
                lambda: (count(space), scaling_of(space).get("current")),
                lambda counts, replicas=replicas: counts[0] != replicas or counts[1] == replicas,  # type: ignore[misc]
                goal="it is seen",
            )
        message = await asyncio.to_thread(space.wait_condition, "AutoscalerConflict", "True", "ExternalWriter")
        assert message.startswith(f"{who} has changed spec.replicas 3 times within 5 min, most recently to ")
        now = count(space)
        await asyncio.to_thread(always, lambda: count(space), lambda n: n == now, goal="Halcyon steps back", for_s=3)


async def test_an_hpa_follows_the_planner_and_the_fast_path_does_not_wait(
    cluster: Cluster, operator: Operator, space: Space
) -> None:
    space.serve(scaling=DIRECT | {"actuator": "HPA"}, traffic={"balancerReplicas": 1})
    hpa = space.must(kinds.HPA, "m")["spec"]
    assert hpa["behavior"]["scaleUp"].get("tolerance") == ("0" if keeps_tolerance(cluster) else None)
    coarse = (
        "HPAs in this cluster do not support a configurable tolerance" in space.status()["scaling"]["actuatorReason"]
    )
    assert coarse == (not keeps_tolerance(cluster)), "it isn't said that an HPA ignores small changes here"
    assert Space(space.api, operator.namespace).every(kinds.HPA) == [], "the dry run that found it out was none"
    assert [m["external"]["metric"]["name"] for m in hpa["metrics"]] == ["desiredReplicas"]
    async with Load(operator, space) as load:
        load.rate = 20
        await learnt(space)
        load.rate = 200
        # No APIService leads to this operator, so no HPA gets a value here: it was the fast path.
        await reached(lambda: count(space), lambda n: n >= 4, goal="the fast path writes at once")


async def test_a_hand_over_between_writers_changes_no_replicas(operator: Operator, space: Space) -> None:
    space.serve(scaling=DIRECT, traffic={"balancerReplicas": 1})
    async with Load(operator, space) as load:
        load.rate = 20
        await learnt(space)
        load.rate = 180  # 3.3 replicas' worth
        await reached(lambda: count(space), lambda n: n >= 4, goal="the load is planned for")
        # A fresh load may be understood better a second later; from here on nothing about it is new.
        await asyncio.sleep(10)
        held = count(space)
        for actuator in ("HPA", "Direct"):
            handing_over = asyncio.ensure_future(hand_over(space, actuator))
            await asyncio.to_thread(
                always, lambda: (count(space), newest(space)), lambda state: state[0] == held, goal="the count", for_s=5
            )
            await handing_over
            assert count(space) == held


async def hand_over(space: Space, actuator: str) -> None:
    """Have it write the count from now on, and return when it does."""
    space.merge(kinds.MODEL_DEPLOYMENT, "m", {"spec": {"scaling": {"actuator": actuator}}})
    await reached(
        lambda: (scaling_of(space).get("actuator"), space.get(kinds.HPA, "m") is not None),
        lambda state: state == (actuator, actuator == "HPA"),
        goal=f"{actuator} writes",
    )


async def test_a_full_quota_limits_the_replicas_instead_of_leaving_pods_uncreated(
    operator: Operator, space: Space
) -> None:
    space.serve(scaling=DIRECT, traffic={"balancerReplicas": 1})
    # One server and one balancer are there; two more fit. The operator has long heard of it when it matters.
    space.apply(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "team", "namespace": space.namespace},
            "spec": {"hard": {"pods": "4"}},
        }
    )
    await reached(
        lambda: (space.get(kinds.RESOURCE_QUOTA, "team") or {}).get("status", {}).get("used"),
        lambda used: (used or {}).get("pods") == "2",
        goal="the quota counts",
    )
    async with Load(operator, space) as load:
        load.rate = 20
        await learnt(space)
        load.rate = 300
        await reached(lambda: count(space), lambda n: n == 3, goal="as many as there is room for")
        await reached(
            lambda: scaling_of(space).get("limitedBy") or [], lambda names: "quota" in names, goal="it is said"
        )
        assert "ResourceQuota team allows 3: pods is " in scaling_of(space)["why"]
        assert count(space) == 3
        space.merge(kinds.RESOURCE_QUOTA, "team", {"spec": {"hard": {"pods": "20"}}})
        await reached(lambda: count(space), lambda n: n >= 5, goal="the room is used")


@pytest.fixture
def two_gpus(cluster: Cluster) -> Iterator[dict[str, str]]:
    """Labels of a node with 2 GPUs."""
    name = f"gpus-{uuid.uuid4().hex[:8]}"
    labels = {"halcyon.dev/pool": name, "kubernetes.io/os": "linux"}
    resources = {"cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti", "pods": "100", "nvidia.com/gpu": "2"}
    node = {"metadata": {"name": name, "labels": labels}, "status": {"capacity": resources, "allocatable": resources}}
    cluster.api.create("/api/v1/nodes", node)
    yield labels
    cluster.api.call("DELETE", f"/api/v1/nodes/{name}")


async def test_free_gpus_limit_no_replicas_and_the_scheduler_names_the_shortage(
    operator: Operator, space: Space, two_gpus: dict[str, str]
) -> None:
    runtime = {"gpu": {"count": 1}, "placement": {"nodeSelector": two_gpus}}
    space.serve(scaling=DIRECT | {"maxReplicas": 5}, runtime=runtime, traffic={"balancerReplicas": 1})
    async with Load(operator, space) as load:
        load.rate = 20
        await learnt(space)
        load.rate = 400
        await reached(lambda: count(space), lambda n: n == 5, goal="the load is planned for")
        await reached(
            lambda: space.status()["pods"],
            lambda pods: (pods["total"], pods["ready"], pods["unschedulable"]) == (5, 2, 3),
            goal="three find no node",
        )
        message = await reached(
            lambda: space.condition("ScalingActive")[2],
            lambda text: "2 of 5 desired pods are ready, 0 starting, 3 unschedulable (" in text,
            goal="it is said",
        )
        assert "Insufficient nvidia.com/gpu" in message.partition("3 unschedulable (")[2]
        await asyncio.to_thread(always, lambda: count(space), lambda n: n == 5, goal="the count asked for", for_s=5)
        assert scaling_of(space)["desired"] == 5
        assert "quota" not in scaling_of(space).get("limitedBy", ())
