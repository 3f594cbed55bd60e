"""An upgrade of the operator, and `halcyon refresh`: what restarts no pod, who is told of, and what rolls over when it is asked to.

The newer version is the same program that renders with other images. Pods are KWOK's.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.cluster.cluster import Cluster
from halcyon.kube import kinds
from halcyon.main import main
from tests.integration.operator_process import IMAGES, Operator, running
from tests.integration.operator_space import REPLICA_SET, Space, deployment
from tests.integration.waiting import until

pytestmark = pytest.mark.more

NEWER = tuple(option.replace(":dev", ":next").replace(":24.10", ":25.01") for option in IMAGES)
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def operator(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Operator]:
    """Of this namespace alone, so that it may be ended and begun anew."""
    with running(cluster, tmp_path, watch=namespace) as started:
        yield started


@pytest.fixture
def refresh(cluster: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """`halcyon refresh ...` in the test's namespace: (exit status, stdout)."""

    def run(*arguments: str) -> tuple[int, str]:
        status = main(["refresh", *arguments, "-n", namespace, "--kubeconfig", str(cluster.kubeconfig)])
        captured = capsys.readouterr()
        assert captured.err == ""
        return status, captured.out

    return run


def upgrade(operator: Operator) -> None:
    """Have a newer version lead in its place."""
    led = len(operator.logged("started as the leader"))
    operator.stop()
    operator.images = NEWER
    operator.start()
    until(
        lambda: len(operator.logged("started as the leader")),
        lambda n: n > led,
        goal="the newer version works",
        limit_s=30,
    )


def servers(space: Space, name: str = "m") -> dict[str, str]:
    """The uids of live servers, and their Triton's image."""
    live = [p for p in space.every(kinds.POD) if p["metadata"]["name"].startswith(f"{name}-a-")]
    live = [p for p in live if not p["metadata"].get("deletionTimestamp")]
    return {p["metadata"]["uid"]: p["spec"]["containers"][0]["image"] for p in live}


def written(space: Space, name: str = "m") -> dict[tuple[str, str], str]:
    """Versions of what servers are made of."""
    kept = {kinds.CONTROLLER_REVISION.kind, REPLICA_SET.kind}
    return {child: v for child, v in space.versions().items() if child[0] in kept and child[1].startswith(f"{name}-")}


def test_a_newer_operator_restarts_no_server_and_names_older_renderings(
    space: Space, operator: Operator, refresh: Run
) -> None:
    space.serve(replicas=2)
    before, records = servers(space), written(space)
    assert space.condition("RuntimeOutdated") == ("", "", "")
    assert refresh("m") == (0, "m runs the current template; nothing to do\n")
    upgrade(operator)

    message = space.wait_condition("RuntimeOutdated", "True", "PodTemplateOutdated")
    assert (
        "spec.containers[triton].image (localhost/tritonserver-cpu:24.10 to localhost/tritonserver-cpu:25.01)"
        in message
    )
    space.scale(3)
    until(lambda: len(servers(space)), lambda n: n == 3, goal="there are three servers")
    space.wait_settled()
    assert servers(space).items() >= before.items()
    assert set(servers(space).values()) == {"localhost/tritonserver-cpu:24.10"}
    mine = {child for child in written(space) if "balancer" not in child[1]}
    assert mine == {child for child in records if "balancer" not in child[1]}
    status, out = refresh("--all", "--dry-run")
    assert (status, out.startswith(f"{space.namespace}/m: the pod template of revision ")) == (0, True)
    assert servers(space).items() >= before.items()


def test_a_refresh_rolls_over_by_the_models_own_strategy_once(space: Space, operator: Operator, refresh: Run) -> None:
    space.serve(replicas=2, rollout={"strategy": "Replace"})
    upgrade(operator)
    space.wait_condition("RuntimeOutdated", "True")
    before, old = servers(space), space.status()["revision"]["target"]

    assert refresh("m")[0] == 0
    until(lambda: space.status()["revision"]["target"], lambda t: t != old, goal="it is rendered anew")
    rolling = space.must(kinds.DEPLOYMENT, "m-a")["spec"]["strategy"]["rollingUpdate"]
    assert (rolling["maxSurge"], rolling["maxUnavailable"]) == (0, 1)
    space.wait_settled(limit_s=40)
    assert not before.keys() & servers(space).keys()
    assert set(servers(space).values()) == {"localhost/tritonserver-cpu:25.01"}
    assert space.condition("RuntimeOutdated") == ("", "", "")
    # Done is done: neither the annotation that stays nor a restart rolls anything over.
    after = servers(space)
    assert refresh("m") == (0, "m runs the current template; nothing to do\n")
    operator.stop()
    operator.start()
    space.scale(3)
    until(lambda: len(servers(space)), lambda n: n == 3, goal="it works")
    assert servers(space).items() >= after.items()


def test_outdated_models_are_refreshed_in_turn_and_current_ones_are_left(
    space: Space, operator: Operator, refresh: Run
) -> None:
    space.serve("m", replicas=1)
    space.serve("n", replicas=1)
    upgrade(operator)
    for name in ("m", "n"):
        space.wait_condition("RuntimeOutdated", "True", name=name)
    space.apply(deployment("fresh"))
    space.wait_settled("fresh")
    fresh = servers(space, "fresh")

    status, out = refresh("--all", "--within", "60s")
    first, second = out.splitlines()
    assert status == 0, out
    assert first.endswith(f"{space.namespace}/m serves its new template")
    assert second.startswith("2 of 2: ")
    assert {*servers(space, "m").values(), *servers(space, "n").values()} == {"localhost/tritonserver-cpu:25.01"}
    assert servers(space, "fresh") == fresh
