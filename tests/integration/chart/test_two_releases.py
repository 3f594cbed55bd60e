"""Two releases in one namespace, each with models of its own: both lead, and each keeps what its planner has learnt."""

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster.cluster import Cluster
from halcyon.kube import kinds
from tests.integration.autoscaling.test_planner import DIRECT, Load, learnt
from tests.integration.operator_process import Operator, install
from tests.integration.operator_space import Space
from tests.integration.waiting import until

pytestmark = pytest.mark.more

RELEASES = ("halcyon", "prod-halcyon")
"""By the names that the chart gives their objects."""


@pytest.fixture
def system(cluster: Cluster) -> Iterator[Space]:
    """The namespace of both."""
    space = Space(cluster.api, install(cluster))
    space.api.create(kinds.SECRET.path(space.namespace), {"metadata": {"name": f"{RELEASES[1]}-tls"}})
    yield space
    space.end()


@pytest.fixture
def spaces(cluster: Cluster) -> Iterator[tuple[Space, ...]]:
    """A namespace of models for each."""
    spaces = tuple(Space(cluster.api, f"t-{uuid.uuid4().hex[:8]}") for _ in RELEASES)
    for space in spaces:
        space.make()
        path = f"/api/v1/namespaces/{space.namespace}/serviceaccounts/default"
        until(lambda path=path: cluster.api.exists(path), bool, goal="it has its service account")  # type: ignore[misc]
    yield spaces
    for space in spaces:
        space.end()


@pytest.fixture
def operators(cluster: Cluster, system: Space, spaces: tuple[Space, ...], tmp_path: Path) -> Iterator[list[Operator]]:
    """One replica of each, with the arguments that the chart gives."""
    with contextlib.ExitStack() as ending:
        started = []
        for name, space in zip(RELEASES, spaces, strict=True):
            more = (
                f"--service={name}",
                f"--agents-service={name}-agents",
                f"--tls-secret={name}-tls",
                f"--lease={name}",
                f"--memory-config-maps={name}-memory",
            )
            operator = Operator(system.namespace, f"{name}-0", cluster.kubeconfig, tmp_path, space.namespace, more)
            operator.start()
            ending.callback(operator.stop)
            started.append(operator)
        yield started


async def test_two_releases_both_lead_and_keep_their_own_memories(
    operators: list[Operator], system: Space, spaces: tuple[Space, ...]
) -> None:
    for operator in operators:
        operator.wait_leading()
        operator.wait_ready()
    for operator, space in zip(operators, spaces, strict=True):
        space.serve(scaling=DIRECT, traffic={"balancerReplicas": 1})
        async with Load(operator, space) as load:
            load.rate = 20.0
            await learnt(space)
    assert [system.must(kinds.LEASE, name)["spec"]["holderIdentity"] for name in RELEASES] == [
        o.name for o in operators
    ]

    for operator in operators:
        assert operator.stop() == 0
        assert not operator.complaints(), operator.complaints()
    kept = {
        shard["metadata"]["name"]: set(shard.get("binaryData") or {})
        for shard in system.every(kinds.CONFIG_MAP)
        if "-memory-" in shard["metadata"]["name"]
    }
    assert kept == {f"{n}-memory-000": {f"{s.namespace}.m"} for n, s in zip(RELEASES, spaces, strict=True)}
