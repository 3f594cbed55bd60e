"""A tenant writes over the accepted spec, in a loop and under load: no ceiling gives way, and what was accepted comes back.

The agent is imitated, as in `test_direct_scaling`; API server, operator, budget and the tenant's writes are real.
"""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from halcyon.api.documents.observation_report import AUDIENCE
from halcyon.kube import kinds
from tests.integration.autoscaling.test_direct_scaling import SCALING, Agent, record
from tests.integration.hostile_scene import Kept
from tests.integration.operator.test_leader_election import token
from tests.integration.operator_process import Operator, running
from tests.integration.operator_space import Space, deployment
from tests.integration.waiting import PATIENCE, until

pytestmark = pytest.mark.more

BUDGET = 4
DESIRED = 5
"""By the rules, for the load below."""
GPU: dict[str, Any] = {"gpu": {"count": 1}}
LOAD_S = 20.0
RECORD_EVERY_S = 0.5
LOOKS = 5
"""At the counts, between two records."""


@pytest.fixture(scope="module")
def operator(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """One whose site has four GPUs for all models, and allows one model nine."""
    directory = tmp_path_factory.mktemp("operator")
    policy = directory / "policy.json"
    policy.write_text(json.dumps({"limits": {"gpusPerModel": SCALING["maxReplicas"]}}))
    more = (f"--gpu-budget={BUDGET}", f"--site-policy-file={policy}")
    with running(cluster, directory, more=more) as started:
        started.wait_ready()
        yield started


@pytest.fixture
def space(cluster: Cluster, namespace: str) -> Iterator[Space]:
    """With a served model, and a connection for each thread."""
    with closing(Kept(cluster.api.identity, cluster)) as api:
        own_space = Space(api, namespace)
        own_space.serve(scaling=SCALING, runtime=GPU)
        yield own_space


def accepted(space: Space) -> str:
    """What lies in the ConfigMap."""
    return str(space.must(kinds.CONFIG_MAP, "m-balancer")["data"]["accepted.json"])


def forged(text: str) -> str:
    """A spec without GPUs, which no budget holds, and with more replicas than anybody has accepted."""
    spec = json.loads(text)
    spec["runtime"]["gpu"] = {"count": 0}
    spec["scaling"]["maxReplicas"] = 1000
    return json.dumps(spec)


@dataclass
class Tenant:
    """Writes it as often as the API server lets it."""

    space: Space
    text: str
    writes: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Write until `end`."""
        while not self._ended.is_set():
            self.space.merge(kinds.CONFIG_MAP, "m-balancer", {"data": {"accepted.json": self.text}})
            self.writes += 1

    def end(self) -> None:
        """Write no more."""
        self._ended.set()


@contextmanager
def tenant(space: Space) -> Iterator[Tenant]:
    """One who writes all the while."""
    writer = Tenant(space, forged(accepted(space)))
    with ThreadPoolExecutor(1) as thread:
        writing = thread.submit(writer.run)
        try:
            yield writer
        finally:
            writer.end()
        writing.result()


@pytest.mark.parametrize("is_refused", [False, True], ids=["accepted", "refused"])
async def test_every_limit_holds_while_a_tenant_overwrites_the_spec(
    operator: Operator, space: Space, is_refused: bool
) -> None:
    before = accepted(space)
    if is_refused:
        space.apply(deployment(scaling=SCALING | {"maxReplicas": 20}, runtime=GPU))
        assert "stays in effect" in space.wait_condition("Accepted", "False", "PolicyDenied")
    counts: list[int] = []
    async with Agent(operator, space, token(space, "m-balancer", AUDIENCE)) as stream:
        with tenant(space) as edits:
            end = time.monotonic() + LOAD_S
            last = end + LOAD_S * PATIENCE
            while (now := time.monotonic()) < end or (BUDGET not in counts and now < last):
                await stream.send_str(await asyncio.to_thread(record, space, queued=10 * DESIRED - 2))
                for _ in range(LOOKS):
                    counts += await asyncio.to_thread(_counts, space)
                    await asyncio.sleep(RECORD_EVERY_S / LOOKS)
    print(f"{edits.writes} writes, {len(counts) // 2} looks, the count reached {max(counts)}")  # noqa: T201  # the figures of the test

    assert edits.writes > 20
    assert max(counts) == BUDGET
    until(lambda: accepted(space), lambda text: text == before, goal="what was accepted is there again", limit_s=5)
    if is_refused:
        assert "stays in effect" in space.condition("Accepted")[2]
    assert [e["type"] for e in space.events() if e["reason"] == "AcceptedSpecEdited"] == ["Warning"]


def _counts(space: Space) -> list[int]:
    """Replicas that are asked for, and those of the servers' Deployment."""
    return [int(space.must(kinds.MODEL_DEPLOYMENT, "m")["spec"]["replicas"]), space.replicas()]


def test_an_edit_is_undone_at_once_also_while_the_spec_is_refused(operator: Operator, space: Space) -> None:
    assert operator.process is not None
    before = accepted(space)
    space.apply(deployment(scaling=SCALING | {"maxReplicas": 20}, runtime=GPU))
    space.wait_condition("Accepted", "False", "PolicyDenied")
    for edit in ({"data": {"accepted.json": forged(before)}}, {"data": {"accepted.json": None}}):
        space.merge(kinds.CONFIG_MAP, "m-balancer", edit)
        until(lambda: _text(space), lambda text: text == before, goal="it is there again", limit_s=2)
    space.delete(kinds.CONFIG_MAP, "m-balancer")
    until(lambda: _text(space), lambda text: text == before, goal="it is there again", limit_s=5)


def _text(space: Space) -> str | None:
    config_map = space.get(kinds.CONFIG_MAP, "m-balancer") or {"data": {}}
    text: str | None = config_map["data"].get("accepted.json")
    return text
