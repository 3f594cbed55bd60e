"""The outputs in the runbooks, for a model or an operator that is unwell, from the code that makes their words."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import io
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from e2e.guides import elsewhere
from e2e.shown_output import console_steps, difference
from halcyon.balancer.secrets import mounted_secrets
from halcyon.balancer.secrets.certificate_expiry import describe
from halcyon.control.reconcile import workers as reconcile_workers
from halcyon.control.reconcile.reconciler import Reconciler, Result
from halcyon.control.reconcile.workers import Workers
from halcyon.control.runtime.json_logging import JsonFormatter
from halcyon.control.state.scope import Signals
from halcyon.kube import encoding, errors, leader_election, rbac_denials
from halcyon.kube.client import Kube
from halcyon.kube.clock import SYSTEM_CLOCK
from halcyon.kube.kinds import Key
from halcyon.kube.leader_election import DURATION_S, RENEW_DEADLINE_S, LeaderElector
from halcyon.kube.lease_fence import LeaseFence
from halcyon.kube.work_queue import WorkQueue
from halcyon.triton.json_log import log
from halcyon_cli.kube.inventory import Inventory
from tests.clocks import DrivenClock
from tests.unit.balancer.secrets.test_certificate_expiry import NOW, lasting
from tests.unit.cli.explain.test_report import GOLDEN
from tests.unit.cli.explained_models import OURS, SCALED
from tests.unit.cli.inventories import inventory
from tests.unit.cli.output.test_tree import page as tree
from tests.unit.cli.staged_causes import BROKEN, STAGES
from tests.unit.control.rollout.deployment_simulation import served
from tests.unit.control.status.test_status import condition, deployed

WEIGHT_BYTES = 40_000
"""Causes are staged in a simulated operator."""

HERE = "tests/unit/monitoring/test_runbook_outputs.py"
PAGES = sorted((Path(__file__).parents[3] / "docs" / "runbooks").glob("*.md"))
LEASE_PATH = "/apis/coordination.k8s.io/v1/namespaces/halcyon-system/leases/halcyon"
COLUMNS = ("state", "ready", "desired", "range")
EXPIRES_SOON = "a certificate in use is invalid or expires soon"
WEBHOOK = 'failed calling webhook "policy.example.com": context deadline exceeded'


def explained(file: str) -> Callable[[], str]:
    return (GOLDEN / file).read_text


def status(stage: str) -> dict[str, Any]:
    stage_status: dict[str, Any] = STAGES[stage]().resource["status"]
    return stage_status


def condition_of(status: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(entry for entry in status["conditions"] if entry["type"] == kind)


def blocked() -> str:
    """The tree of a model whose next revision finds no capacity."""
    cluster = served(room=2, count=2, strategy="Surge")
    cluster.key(batching={"maxBatchSize": 2})
    for act in (cluster.operate, cluster.control, cluster.control, cluster.schedule, cluster.start):
        act()
    cluster.now += 90
    return tree(inventory(cluster), width=500)


def unloaded() -> Inventory:
    """A model that Triton cannot load."""
    cluster = served(room=2, count=2)
    cluster.spec["scaling"] = dict(SCALED)
    for server in cluster.servers:
        server.ready = False
    errors = {server.name: BROKEN for server in cluster.servers}
    return inventory(cluster, metrics_api=OURS, signals=Signals(load_errors=errors))


def row() -> str:
    """The columns of the CRD, which `kubectl get` prints."""
    summary = unloaded().model["status"]["summary"]
    return f"NAME STATUS READY DESIRED RANGE AGE\ndigits {' '.join(summary[key] for key in COLUMNS)} 4d"


def expiring() -> str:
    """The agent's words about a certificate with three days left."""
    return describe("tls.crt", (lasting(3),), NOW.timestamp())


def balancer_message() -> str:
    trouble = f"pod digits-balancer-7c9d8b6f5-x2k4w: Secret digits-tls, as in use: {expiring()}"
    degraded = condition(deployed(balancer_errors=(trouble,)), "BalancerReady")
    assert degraded is not None
    assert degraded[1] == "BalancerDegraded"
    return degraded[2]


def agents_log() -> str:
    with contextlib.redirect_stderr(io.StringIO()) as written:
        log("warning", EXPIRES_SOON, secret="digits-tls", certificate=expiring())
    assert f'"{EXPIRES_SOON}"' in inspect.getsource(mounted_secrets)
    return written.getvalue()


@contextlib.contextmanager
def logged(name: str) -> Iterator[io.StringIO]:
    """Let the operator's logger write to the text, in the operator's format."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield written
    finally:
        logger.removeHandler(handler)


def missing_permission() -> str:
    user = 'User "system:serviceaccount:halcyon-system:halcyon"'
    message = f'pods is forbidden: {user} cannot list resource "pods" in API group "" at the cluster scope'
    with logged(rbac_denials.__name__) as written:
        rbac_denials.RbacDenials(lambda: 0.0).refused("GET", "/api/v1/pods", message)
    return written.getvalue()


class Failing:
    """A reconcile that a webhook fails, and the end of the worker's second one."""

    def __init__(self) -> None:
        self.again = asyncio.Event()
        self.count = 0

    async def reconcile(self, _: Key) -> Result:
        self.count += 1
        if self.count > 1:
            self.again.set()
        detail = {"message": f"Internal error occurred: {WEBHOOK}"}
        raise encoding.error("PATCH Deployment team/digits-a", 500, detail)


async def failed_reconcile() -> str:
    queue = WorkQueue(SYSTEM_CLOCK)
    queue.add(Key("team", "digits"))
    failing = Failing()
    workers = Workers(queue, cast("Reconciler", failing), CollectorRegistry(), SYSTEM_CLOCK)
    with logged(reconcile_workers.__name__) as written:
        running = asyncio.create_task(workers.run(1))
        await failing.again.wait()
        running.cancel()
    return written.getvalue().splitlines()[0]


class Away:
    """A client of an API server that doesn't answer."""

    async def get(self, *_: object) -> None:
        raise errors.Unreachable(f"GET {LEASE_PATH}: {TimeoutError()!r}")


async def lost_lease() -> str:
    clock = DrivenClock(lambda: 0.0)
    fence = LeaseFence("halcyon-system/halcyon", clock, deadline_s=RENEW_DEADLINE_S, duration_s=DURATION_S)
    elector = LeaderElector(cast("Kube", Away()), "halcyon-system", "halcyon", "halcyon-0", clock, fence)
    stop = asyncio.Event()
    with logged(leader_election.__name__) as written:
        running = asyncio.create_task(elector.run(stop))
        await asyncio.sleep(0)
        stop.set()
        await running
    return written.getvalue()


OUTPUTS: dict[str, Callable[[], str]] = {
    "HalcyonAutoscalerConflict.md: kubectl halcyon explain": explained("other-autoscaler.txt"),
    "HalcyonBalancerDegraded.md: kubectl -n NAMESPACE get": balancer_message,
    "HalcyonBalancerDegraded.md: kubectl -n NAMESPACE logs": agents_log,
    "HalcyonGPUIdle.md: kubectl halcyon explain": explained("schedules.txt"),
    "HalcyonMetricMissing.md: kubectl halcyon explain": explained("blind.txt"),
    "HalcyonModelAtMax.md: kubectl halcyon explain": explained("rules-at-max.txt"),
    "HalcyonModelLoadFailed.md: kubectl get mdep": lambda: status("load-failed")["model"]["error"],
    "HalcyonModelNotReady.md: kubectl get mdep": row,
    "HalcyonModelNotReady.md: kubectl halcyon get": lambda: tree(unloaded(), width=500),
    "HalcyonNoLeader.md: kubectl -n halcyon-system logs": lambda: asyncio.run(lost_lease()),
    "HalcyonPermissionsMissing.md: kubectl -n halcyon-system logs": missing_permission,
    "HalcyonReconcileErrors.md: kubectl -n halcyon-system logs": lambda: asyncio.run(failed_reconcile()),
    "HalcyonRolloutBlocked.md: kubectl halcyon get": blocked,
    "HalcyonRolloutBlocked.md: kubectl get mdep": lambda: status("rollout-blocked")["rollout"]["message"],
    "HalcyonSpecRejected.md: kubectl get mdep": lambda: condition_of(status("refused"), "Accepted")["message"],
}
"""What is printed, by the page and the beginning of its command."""


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_runbook_shows_what_a_command_prints_then(name: str) -> None:
    (step,) = (step for page in PAGES for step in console_steps(page) if step.name.startswith(name))

    assert step.output is not None
    assert difference(step.output, OUTPUTS[name]()) is None


def test_these_commands_are_listed_with_this_test() -> None:
    assert {name for name, test in elsewhere.SHOWN_BY.items() if test == HERE} == OUTPUTS.keys()
