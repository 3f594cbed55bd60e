"""The canary of `halcyon tune --apply` with a real API server and operator: kept, taken back, and started again.

Pods are KWOK's and get no requests, so the analysis never decides; a person promotes here. The scenarios have canaries
that the analysis decides.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from halcyon.kube import kinds
from halcyon.main import main
from halcyon_cli.bench.canary.canary_session import CanaryOutcome, CanarySession
from halcyon_cli.errors import ClusterError, InputError
from halcyon_cli.kube.client import Target
from halcyon_cli.kube.object_writer import ObjectWriter
from tests.integration.operator_process import Operator, running
from tests.integration.operator_space import Space
from tests.integration.waiting import until

pytestmark = [pytest.mark.more, pytest.mark.usefixtures("operator")]

CHANGE = {"batching": {"maxBatchSize": 16, "maxQueueDelay": "1ms"}, "runtime": {"instancesPerGPU": 2}}
Apply = Callable[..., CanaryOutcome]


@pytest.fixture
def operator(cluster: Cluster, namespace: str, tmp_path: Any) -> Iterator[Operator]:
    """Start an operator for this namespace alone."""
    with running(cluster, tmp_path, watch=namespace) as started:
        yield started


@pytest.fixture
def writer(cluster: Cluster, namespace: str) -> ObjectWriter:
    return ObjectWriter(Target("tune", kubeconfig=cluster.kubeconfig, namespace=namespace))


@pytest.fixture
def apply(writer: ObjectWriter) -> Apply:
    def run(at_step: Callable[[], None], change: Any = None, *, limit_s: float = 60) -> CanaryOutcome:
        def shown(text: str) -> None:
            if "step 1 of" in text:
                at_step()

        session = CanarySession(writer, "m", limit_s=limit_s, start_s=60, show=shown)
        return session.run(CHANGE if change is None else change)

    return run


def interrupt() -> None:
    raise KeyboardInterrupt


def serve(space: Space, **spec: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"replicas": 2, "batching": {"maxBatchSize": 8}, "traffic": {"drainTimeout": "1s"}}
    space.serve(**(fields | spec))
    until(
        lambda: rollout(space),
        lambda progress: progress.get("phase") == "Complete",
        goal="the first revision is served",
    )
    return copy.deepcopy(space.must(kinds.MODEL_DEPLOYMENT, "m")["spec"])


def rollout(space: Space) -> dict[str, Any]:
    progress: dict[str, Any] = (space.must(kinds.MODEL_DEPLOYMENT, "m").get("status") or {}).get("rollout") or {}
    return progress


def test_interrupted_canary_leaves_the_model_as_it_was(space: Space, apply: Apply) -> None:
    before = serve(space)
    result = apply(interrupt)
    assert result.end == "undone"
    assert result.why == "it was interrupted; the previous settings serve all requests"
    assert space.must(kinds.MODEL_DEPLOYMENT, "m")["spec"] == before
    assert "canary" not in rollout(space)
    # The abort of the first canary doesn't end a second one of the same revision.
    steps: list[str] = []
    again = apply(lambda: steps.append("step"), limit_s=8)
    assert len(steps) > 3
    assert "wasn't decided within" in again.why
    assert space.must(kinds.MODEL_DEPLOYMENT, "m")["spec"] == before


def test_promoted_canary_stays_and_the_strategy_is_restored(
    space: Space, apply: Apply, cluster: Cluster, namespace: str
) -> None:
    before = serve(space, rollout={"strategy": "Surge"})
    target = ("-n", namespace, "--kubeconfig", str(cluster.kubeconfig))
    promoted: list[int] = []

    def promote() -> None:
        promoted.extend([main(["promote", "m", *target])] if not promoted else [])

    result = apply(promote)
    assert (result.end, promoted) == ("promoted", [0])
    assert result.why == "a person promoted the canary"
    model = space.must(kinds.MODEL_DEPLOYMENT, "m")
    assert model["spec"]["batching"] == CHANGE["batching"]
    assert model["spec"]["rollout"] == before["rollout"]
    assert model["status"]["revision"]["current"] == result.revision


def test_second_canary_is_refused_while_one_is_in_progress(space: Space, apply: Apply) -> None:
    serve(space)
    refused: list[str] = []

    def second() -> None:
        with pytest.raises(InputError, match="a canary at step 1 already") as error:
            apply(interrupt)
        refused.append(str(error.value))
        raise KeyboardInterrupt

    assert apply(second).end == "undone"
    assert len(refused) == 1


def test_change_that_the_api_server_rejects_is_not_written(space: Space, apply: Apply, writer: ObjectWriter) -> None:
    before = serve(space)
    change = {"batching": {"maxBatchSize": 4, "preferredBatchSizes": [8]}}
    assert "preferredBatchSizes" in writer.rejection(kinds.MODEL_DEPLOYMENT, "m", {"spec": change})
    assert writer.rejection(kinds.MODEL_DEPLOYMENT, "m", {"spec": CHANGE}) == ""
    with pytest.raises(ClusterError, match="preferredBatchSizes"):
        apply(interrupt, change)
    assert space.must(kinds.MODEL_DEPLOYMENT, "m")["spec"] == before


def test_other_writer_of_the_same_field_keeps_its_value(space: Space, apply: Apply) -> None:
    serve(space)

    def other() -> None:
        space.merge(kinds.MODEL_DEPLOYMENT, "m", {"spec": {"batching": {"maxBatchSize": 32}}})

    result = apply(other)
    assert result.end == "left"
    assert space.must(kinds.MODEL_DEPLOYMENT, "m")["spec"]["batching"]["maxBatchSize"] == 32
