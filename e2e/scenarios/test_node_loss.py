"""A real node is lost while pods under load run on it: what fails, for how long, what replaces it, and its return.

Run it with `make test-nodes`. Kubernetes detects the loss after 40 s to 50 s and replaces the pods 5 minutes later, so this
takes 10 minutes. The leader of the operator, a balancer and half of the servers are on the lost node.
"""

import time
from dataclasses import dataclass, field

import pytest

from demo.kube import PATIENCE, Kube, is_ready, wait_for
from e2e.cluster import node_loss
from e2e.scenarios.node_pair import (
    CLUSTER,
    FIRST,
    MODEL,
    SECOND,
    SERVERS,
    History,
    all_ready,
    lead_on,
    lease_holder,
    loaded,
    placed,
    spread_again,
)
from e2e.scenarios.two_nodes import installed, pair

__all__ = ["installed", "pair"]

pytestmark = pytest.mark.nodes

_KINDS = ("http", "grpc")
_DETECTED_S = 60.0
"""Kubernetes's node-monitor-grace-period of 50 s, and the time until kube-proxy knows."""
_TOLERATED_S = 300.0
"""Time after which Kubernetes deletes the pods of a lost node."""
_LEASE_S = 30.0
"""Longest time until the other operator leads: the lease's duration, and its retries."""

_SHOWN = f"{SERVERS // 2} of {SERVERS} servers are ready: node {SECOND} does not respond"


@dataclass
class Loss:
    """Times in seconds since the loss, and what was seen."""

    history: History
    detected_s: float = 0.0
    lease_s: float = 0.0
    replaced_s: float = 0.0
    returned_s: float = 0.0
    message: str = ""
    placed: dict[str, dict[str, int]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def loss(pair: Kube) -> Loss:
    """Lose the node under load, wait for the replaced pods, bring the node back, and wait until the old pods are gone."""
    spread_again(pair)
    lead_on(pair, SECOND)
    first_holder = lease_holder(pair)
    with loaded(pair, kinds=_KINDS) as history:
        lost_s = time.monotonic()
        seen = Loss(history)

        def since() -> float:
            return round(time.monotonic() - lost_s, 1)

        node_loss.lose(CLUSTER)
        wait_for(lambda: lease_holder(pair) != first_holder, goal="the other operator leads", limit_s=_LEASE_S)
        seen.lease_s = since()
        wait_for(lambda: placed(pair, "balancer")[SECOND] == 0, goal="Kubernetes detects the loss", limit_s=_DETECTED_S)
        seen.detected_s = since()
        wait_for(lambda: _SHOWN in _message(pair), goal="the status shows the node", limit_s=20)
        seen.message = _message(pair)
        wait_for(lambda: _is_replaced(pair), goal="the pods are replaced", limit_s=_TOLERATED_S)
        seen.replaced_s = since()
        seen.placed = {component: placed(pair, component) for component in ("server", "balancer")}
        node_loss.bring_back(CLUSTER)
        wait_for(lambda: all_ready(pair), goal="the old pods are gone", limit_s=60)
        seen.returned_s = since()
        time.sleep(5)
    seen.history = history.since(lost_s)
    print(f"loss: lease {seen.lease_s} s, detected {seen.detected_s} s, replaced {seen.replaced_s} s", flush=True)
    for kind in _KINDS:
        part = seen.history.of(kind)
        print(f"{kind}: {part.answered} answered, {part.failures}, from and to {part.failing_s(lost_s)}", flush=True)
    return Loss(**{**vars(seen), "history": _shifted(seen.history, lost_s)})


def _shifted(history: History, began_s: float) -> History:
    return History([type(s)(s.at_s - began_s, s.kind, s.answered, s.failures) for s in history.seconds])


def _message(kube: Kube) -> str:
    return str((kube.condition(MODEL, "ServersReady") or {}).get("message"))


def _is_replaced(kube: Kube) -> bool:
    servers, balancers, operators = placed(kube, "server"), placed(kube, "balancer"), placed(kube, None)
    return (servers[FIRST], balancers[FIRST], operators[FIRST]) == (SERVERS, 2, 2)


def test_loss_of_a_node_fails_requests_only_until_it_is_detected(loss: Loss) -> None:
    last = loss.history.failing_s(0.0)
    assert last is None or last[1] <= (_DETECTED_S + 30) * PATIENCE
    after = loss.history.since(loss.detected_s + 30)
    assert after.failures == {}
    assert after.answered > 100


def test_servers_of_the_other_node_answer_all_the_time(loss: Loss) -> None:
    for second in (10, 20, 30, 40):
        in_time = [s for s in loss.history.seconds if second <= s.at_s < second + 10]
        assert sum(s.answered for s in in_time) > 10, f"{second} s after the loss"


def test_leadership_passes_to_the_other_node(loss: Loss) -> None:
    assert loss.lease_s <= _LEASE_S * PATIENCE


def test_status_shows_the_lost_node(loss: Loss) -> None:
    assert _SHOWN in loss.message


def test_pods_of_a_lost_node_are_replaced_on_the_other(loss: Loss) -> None:
    assert loss.placed == {"server": {FIRST: SERVERS, SECOND: 0}, "balancer": {FIRST: 2, SECOND: 0}}
    assert loss.replaced_s <= (_DETECTED_S + _TOLERATED_S + 60) * PATIENCE


def test_return_of_the_node_ends_its_old_pods_and_keeps_the_counts(loss: Loss, pair: Kube) -> None:
    assert loss.returned_s > loss.replaced_s
    assert len(pair.pods(MODEL, "server")) == SERVERS
    assert len([pod for pod in pair.operators() if is_ready(pod)]) == 2
