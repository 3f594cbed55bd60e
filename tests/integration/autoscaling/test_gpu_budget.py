"""The site's GPU budget on a real API server, by a real operator: models of two namespaces that are created and grow at once.

The GPUs are counted by a thread all the time, each time from one list: while models are created and grow those of all Deployments
of servers, and while one is deleted those of the replicas in force, since its pods end after it. Agents are imitated by WebSocket
clients with their balancers' tokens; pods are KWOK's.
"""

import asyncio
import contextlib
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import aiohttp
import pytest

from e2e.cluster.cluster import Cluster
from halcyon.api.documents.observation_report import AUDIENCE, AgentReport, BalancerSample, PodSample
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon.render import gpu
from tests.integration.autoscaling.test_direct_scaling import SCALING as RULES
from tests.integration.autoscaling.test_direct_scaling import Agent
from tests.integration.hostile_scene import Kept, prepared
from tests.integration.operator.test_leader_election import pods_of_account, token
from tests.integration.operator_process import Operator, running
from tests.integration.operator_space import Object, Space, deployment
from tests.integration.waiting import until

pytestmark = pytest.mark.more

BUDGET = 8
MODELS = ("one", "two", "three", "pair")
GPUS = {"one": 1, "two": 1, "three": 1, "pair": 2}
"""GPUs of a replica."""
DESIRED = 5
QUEUED = 48
"""Ten are the share of a replica."""

Model = tuple[Space, str]


@pytest.fixture
def spaces(cluster: Cluster) -> Iterator[list[Space]]:
    """Two namespaces with a connection for each thread."""
    with closing(Kept(cluster.api.identity, cluster)) as api:
        spaces = [prepared(api, f"t-{uuid.uuid4().hex[:8]}") for _ in range(2)]
        yield spaces
        for space in spaces:
            space.end()


@pytest.fixture
def budgeted(cluster: Cluster, spaces: list[Space], tmp_path: Path) -> Iterator[Operator]:
    """The operator of a site with a budget, for these namespaces alone."""
    watch = ",".join(space.namespace for space in spaces)
    with running(cluster, tmp_path, watch=watch, more=(f"--gpu-budget={BUDGET}",)) as started:
        started.wait_ready()
        yield started


Count = Callable[[list[Space]], int]


def _every(spaces: list[Space], kind: Kind) -> list[Object]:
    """Objects of these namespaces as they were at one moment."""
    names = {space.namespace for space in spaces}
    page = spaces[0].api.call("GET", kind.path()).body
    assert page is not None
    return [obj for obj in page["items"] if obj["metadata"]["namespace"] in names]


def of_deployments(spaces: list[Space]) -> int:
    """GPUs of all Deployments of servers."""
    deployments = _every(spaces, kinds.DEPLOYMENT)
    return sum(gpu.count(obj["spec"]["template"]) * int(obj["spec"]["replicas"]) for obj in deployments)


def in_force(spaces: list[Space]) -> int:
    """GPUs of the replicas in force of all models."""
    models = _every(spaces, kinds.MODEL_DEPLOYMENT)
    return sum(GPUS[obj["metadata"]["name"]] * int(obj["spec"]["replicas"]) for obj in models)


@contextmanager
def most_held(spaces: list[Space], held: Count) -> Iterator[None]:
    """Check that the GPUs are never more than the budget, and reach it."""
    counts, ended = [held(spaces)], threading.Event()

    def count() -> None:
        while not ended.is_set():
            counts.append(held(spaces))

    with ThreadPoolExecutor(1) as thread:
        counting = thread.submit(count)
        try:
            yield
        finally:
            ended.set()
        counting.result()
    assert len(counts) > 10
    assert max(counts) == BUDGET


def create_at_once(models: list[Model]) -> None:
    together = threading.Barrier(len(models))

    def create(model: Model) -> None:
        space, name = model
        together.wait()
        space.apply(
            deployment(name, scaling=RULES, runtime={"gpu": {"count": GPUS[name]}}, traffic={"balancerReplicas": 1})
        )

    with ThreadPoolExecutor(len(models)) as pool:
        list(pool.map(create, models))
    for space, name in models:
        space.wait_settled(name)


def backlog(model: Model) -> str:
    """A report of so many queued requests."""
    space, name = model
    now = time.time()
    servers = [p["metadata"]["name"] for p in space.every(kinds.POD) if p["metadata"]["name"].startswith(f"{name}-a-")]
    pods = tuple(
        PodSample(pod, "ready", now, pending=0, succeeded=0, failed=0, rows=0, executions=0, versions=("1",))
        for pod in servers
    )
    balancer = BalancerSample(queued=QUEUED, inflight=0, requests=0, rejected=0, errors=0)
    agent = min(pods_of_account(space, f"{name}-balancer"))
    return AgentReport(space.namespace, name, agent, now, balancer, pods).to_json()


class BackloggedModel(Agent):
    """The agent of a model with a backlog, which it reports until the context is closed."""

    def __init__(self, operator: Operator, model: Model) -> None:
        self._model = model
        space, name = model
        super().__init__(operator, space, token(space, f"{name}-balancer", AUDIENCE), balancer=f"{name}-balancer")

    async def __aenter__(self) -> aiohttp.ClientWebSocketResponse:
        stream = await super().__aenter__()
        self._reporting = asyncio.ensure_future(self._report(stream))
        return stream

    async def __aexit__(self, *reason: object) -> None:
        self._reporting.cancel()
        await asyncio.gather(self._reporting, return_exceptions=True)
        await super().__aexit__(*reason)

    async def _report(self, stream: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            await stream.send_str(await asyncio.to_thread(backlog, self._model))
            await asyncio.sleep(0.5)


@contextlib.asynccontextmanager
async def backlogged(operator: Operator, models: list[Model]) -> AsyncIterator[contextlib.AsyncExitStack]:
    """Have the agents of all models report their backlogs, from the same moment on."""
    agents = [BackloggedModel(operator, model) for model in models]
    async with contextlib.AsyncExitStack() as stack:
        await asyncio.gather(*(stack.enter_async_context(agent) for agent in agents))
        yield stack


def replicas(models: list[Model]) -> list[int]:
    return [int(space.must(kinds.MODEL_DEPLOYMENT, name)["spec"]["replicas"]) for space, name in models]


async def wait_used(spaces: list[Space], left: list[Model], more_than: int) -> None:
    """Wait until these models have more replicas than before, and no GPU of the budget that one of them needs is free."""
    await asyncio.to_thread(
        until,
        lambda: (in_force(spaces), sum(replicas(left))),
        lambda usage: usage[0] >= BUDGET - 1 and usage[1] > more_than,
        goal="the budget is used",
    )


async def test_models_created_at_once_share_the_site_s_gpus(budgeted: Operator, spaces: list[Space]) -> None:
    models = [(spaces[number % 2], name) for number, name in enumerate(MODELS)]
    with most_held(spaces, of_deployments):
        await asyncio.to_thread(create_at_once, models)
        assert of_deployments(spaces) == sum(GPUS.values())
        async with backlogged(budgeted, models):
            await asyncio.to_thread(until, lambda: of_deployments(spaces), lambda n: n == BUDGET, goal="it is used")
            for space, name in models:
                scaling = await asyncio.to_thread(
                    until,
                    lambda space=space, name=name: space.status(name).get("scaling") or {},
                    lambda scaling: "budget" in scaling.get("limitedBy", ()),
                    goal=f"{name} reports the limit",
                )
                assert f"the site's budget of {BUDGET} GPUs is shared by priority and need" in scaling["why"]
    assert min(replicas(models)) >= 1
    assert max(replicas(models)) < DESIRED


async def test_gpus_of_a_deleted_model_are_granted_to_the_others(budgeted: Operator, spaces: list[Space]) -> None:
    models = [(spaces[number % 2], name) for number, name in enumerate(MODELS)]
    with most_held(spaces, in_force):
        await asyncio.to_thread(create_at_once, models)
        async with backlogged(budgeted, models):
            await wait_used(spaces, models, len(models))
            (space, name), left = models[0], models[1:]
            before = sum(replicas(left))
            await asyncio.to_thread(space.delete, kinds.MODEL_DEPLOYMENT, name)
            await wait_used(spaces, left, before)
