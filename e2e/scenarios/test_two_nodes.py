"""Two real nodes: pods are spread, and a node can be drained or tainted without a lost request.

Run it with `make test-nodes`: it has a cluster of its own.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from demo.kube import SYSTEM, Kube, is_ready, wait_for
from e2e.scenarios.node_pair import (
    FIRST,
    MODEL,
    SECOND,
    SERVERS,
    History,
    all_ready,
    loaded,
    placed,
    spread_again,
    uneven,
)
from e2e.scenarios.two_nodes import installed, pair

__all__ = ["installed", "pair"]

pytestmark = pytest.mark.nodes

_TAINT = "halcyon.dev/test=leaving"


def _patch(kube: Kube, spec: dict[str, object]) -> None:
    kube("patch", "modeldeployment", MODEL, "--type=merge", f"--patch={json.dumps({'spec': spec})}")


def _restart(kube: Kube, deployment: str, *, namespace: str | None = None) -> None:
    kube("rollout", "restart", f"deployment/{deployment}", namespace=namespace)
    kube("rollout", "status", f"deployment/{deployment}", "--timeout=170s", namespace=namespace)


@contextmanager
def _tainted(kube: Kube, effect: str) -> Iterator[None]:
    kube("taint", "node", SECOND, f"{_TAINT}:{effect}")
    try:
        yield
    finally:
        kube("taint", "node", SECOND, f"{_TAINT}:{effect}-")


def _report(event: str, history: History, began_s: float) -> None:
    after = history.since(began_s)
    print(f"{event}: {time.monotonic() - began_s:.0f} s, {after.answered} answered, {after.failures}", flush=True)


def test_pods_are_spread_over_both_nodes_by_default(pair: Kube) -> None:
    wait_for(lambda: all_ready(pair), goal="all pods are Ready", limit_s=60)
    assert uneven(pair) == []


def test_drain_of_a_node_loses_no_request(pair: Kube) -> None:
    spread_again(pair)
    try:
        with loaded(pair) as history:
            began_s = time.monotonic()
            pair("drain", SECOND, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=170s")
            _report("drain", history, began_s)
            wait_for(lambda: all_ready(pair), goal="all pods are Ready on the other node", limit_s=60)
    finally:
        pair("uncordon", SECOND)
    assert placed(pair, "server") == {FIRST: SERVERS, SECOND: 0}
    assert placed(pair, "balancer") == {FIRST: 2, SECOND: 0}
    assert history.failures == {}
    assert history.answered > 100


def test_rollouts_use_the_node_that_has_no_pod(pair: Kube) -> None:
    """After the drain, all old pods are on one node, and the new ones must not all go to the other."""
    assert placed(pair, "balancer") == {FIRST: 2, SECOND: 0}
    _restart(pair, f"{MODEL}-balancer")
    _restart(pair, "halcyon", namespace=SYSTEM)
    old = {pod["metadata"]["name"] for pod in pair.pods(MODEL, "server")}
    _patch(pair, {"batching": {"maxQueueDelay": "3ms"}})

    def is_replaced() -> bool:
        names = {pod["metadata"]["name"] for pod in pair.pods(MODEL, "server")}
        return not names & old and all_ready(pair)

    wait_for(is_replaced, goal="all servers are replaced", limit_s=100)
    assert uneven(pair) == []


def test_taint_no_schedule_sends_new_pods_to_the_other_node(pair: Kube) -> None:
    spread_again(pair)
    with loaded(pair) as history, _tainted(pair, "NoSchedule"):
        began_s = time.monotonic()
        _patch(pair, {"replicas": SERVERS + 2})
        wait_for(lambda: sum(placed(pair, "server").values()) == SERVERS + 2, goal="two more servers", limit_s=60)
        assert placed(pair, "server") == {FIRST: SERVERS // 2 + 2, SECOND: SERVERS // 2}
        _patch(pair, {"replicas": SERVERS})
        wait_for(lambda: all_ready(pair), goal="two fewer servers", limit_s=60)
        _report("NoSchedule", history, began_s)
    assert history.failures == {}


def test_taint_no_execute_moves_the_pods_without_a_lost_request(pair: Kube) -> None:
    """The pods of the node are deleted at the same time, because disruption budgets don't apply to taints."""
    spread_again(pair)
    with loaded(pair) as history, _tainted(pair, "NoExecute"):
        began_s = time.monotonic()

        def is_moved() -> bool:
            operators = [pod for pod in pair.operators() if is_ready(pod)]
            nodes = {
                pod["spec"].get("nodeName") for pod in (*pair.pods(MODEL, "server"), *pair.pods(MODEL, "balancer"))
            }
            return nodes == {FIRST} and all_ready(pair) and len(operators) == 2

        wait_for(is_moved, goal="all pods are on the other node", limit_s=100)
        _report("NoExecute", history, began_s)
    assert history.failures == {}
