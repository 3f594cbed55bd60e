"""Nothing is lost: what Kubernetes and Halcyon do to a model's pods, under a load that repeats nothing.

One model takes all of it under one load of both protocols; each test asks what one event has cost.
"""

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException

from demo import models
from demo.errors import DemoError
from demo.kube import SYSTEM, Kube, is_ready, wait_for
from demo.models import GRPC_PORT, HTTP_PORT
from e2e.load.process import RunningLoad
from e2e.load.settings import Load, Report
from e2e.scenarios import agents, processes

pytestmark = pytest.mark.more

NAME = "loss"
KILLED = "server killed"
CLIENTS = 8
DRAIN_S = 8
_AFTER_S = 1.5
"""A sample of the load covers the second before it."""
_LIMIT_S = 90


@dataclass
class Model:
    """The model, and the events that happen to it."""

    kube: Kube
    name: str
    servers: int = 3

    def names(self, component: Literal["server", "balancer"]) -> set[str]:
        return {pod["metadata"]["name"] for pod in self.kube.pods(self.name, component)}

    def killed_at(self, pod: str) -> float:
        """Return the end of a terminating pod's grace period, in seconds since the epoch."""
        (document,) = (p for p in self.kube.pods(self.name, "server") if p["metadata"]["name"] == pod)
        return datetime.fromisoformat(document["metadata"]["deletionTimestamp"]).timestamp()

    def wait_until_complete(self, *, without: set[str] = frozenset()) -> None:  # type: ignore[assignment]  # nobody changes it
        """Wait until all pods exist and are Ready, and none of `without` is left."""

        def is_complete() -> bool:
            for component, count in (("server", self.servers), ("balancer", 2)):
                pods = self.kube.pods(self.name, component)
                names = {pod["metadata"]["name"] for pod in pods}
                if len(pods) != count or names & without or not all(map(is_ready, pods)):
                    return False
            return True

        wait_for(is_complete, goal=f"{self.name} has all pods", limit_s=_LIMIT_S)

    def patch(self, spec: Mapping[str, Any]) -> None:
        patch = json.dumps({"spec": spec})
        self.kube("patch", "modeldeployment", self.name, "--type=merge", f"--patch={patch}")

    def scale(self, count: int) -> None:
        self.patch({"replicas": count})
        self.servers = count
        self.wait_until_complete()

    def evict(self, component: Literal["server", "balancer"]) -> None:
        """Evict a pod as a node's drain does: retry while the disruption budget forbids it."""
        pod = min(self.names(component))
        path = f"/api/v1/namespaces/{self.kube.namespace}/pods/{pod}/eviction"
        eviction = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}})

        def evicted() -> bool:
            try:
                self.kube("create", "--raw", path, "--filename=-", stdin=eviction)
            except DemoError as error:
                if "disruption budget" not in str(error):
                    raise
                return False
            return True

        wait_for(evicted, goal=f"{pod} may be evicted", limit_s=30)
        self.wait_until_complete(without={pod})

    def roll_out(self) -> None:
        old = self.names("server")
        self.patch({"batching": {"maxQueueDelay": "3ms"}})
        self.wait_until_complete(without=old)

    def restart_balancers(self) -> None:
        old = self.names("balancer")
        self.kube("rollout", "restart", f"deployment/{self.name}-balancer")
        self.wait_until_complete(without=old)

    def restart_operator(self) -> None:
        self.kube("rollout", "restart", "deployment/halcyon", namespace=SYSTEM)
        self.kube("rollout", "status", "deployment/halcyon", f"--timeout={_LIMIT_S}s", namespace=SYSTEM)
        self.wait_until_complete()

    def kill(self, component: Literal["server", "balancer"], container: str, command: str) -> None:
        """Kill a container's process with SIGKILL, and wait until the container has restarted."""
        pod = self.kube.pods(self.name, component)[0]
        before = processes.restarts(pod, container)
        assert processes.kill(pod, lambda command_line: command in command_line) >= 1

        def is_back() -> bool:
            uid = pod["metadata"]["uid"]
            current = next((p for p in self.kube.pods(self.name, component) if p["metadata"]["uid"] == uid), None)
            return current is not None and is_ready(current) and processes.restarts(current, container) > before

        wait_for(is_back, goal=f"{container} is back", limit_s=60)


EVENTS: dict[str, Callable[[Model], None]] = {
    "scale down": lambda model: model.scale(2),
    "rollout": Model.roll_out,
    "eviction of a server": lambda model: model.evict("server"),
    "operator restart": Model.restart_operator,
    "agent killed": lambda model: model.kill("balancer", "agent", "halcyon agent"),
    KILLED: lambda model: model.kill("server", "triton", "tritonserver"),
    "balancer rollout": Model.restart_balancers,
}


@dataclass
class Cost:
    """Results of the load during one event."""

    answered: int = 0
    failures: dict[str, int] = field(default_factory=dict)

    def add(self, report: Report) -> None:
        self.answered += report.answered
        for kind, count in report.failures.items():
            self.failures[kind] = self.failures.get(kind, 0) + count


@pytest.fixture(scope="module")
def model(kube: Kube, served: Callable[..., str]) -> Model:
    """Serve three servers behind two balancers, with a drain that a test can wait for."""
    document = models.variant(NAME, replicas=3, gpus=0)
    document["spec"]["traffic"] = {"balancerReplicas": 2, "drainTimeout": f"{DRAIN_S}s"}
    deployed = Model(kube, served(document, replicas=3))
    deployed.wait_until_complete()
    return deployed


@pytest.fixture(scope="module")
def costs(model: Model) -> dict[str, Cost]:
    """Trigger all events one after the other under one load, and return the cost of each."""
    by_event = {event: Cost() for event in EVENTS}
    current = next(iter(EVENTS))

    def add_report(report: Report) -> None:
        by_event[current].add(report)

    with ExitStack() as stack:
        for load in _loads(model):
            stack.enter_context(RunningLoad(load, on_report=add_report)).began_s()
        for event, happen in EVENTS.items():
            current = event
            began_s = time.monotonic()
            happen(model)
            time.sleep(_AFTER_S)
            print(f"{event}: {time.monotonic() - began_s:.0f} s, {by_event[event]}", flush=True)
    return by_event


def _loads(model: Model) -> Iterator[Load]:
    """Yield a load over HTTP with keep-alive, and one over two long-lived gRPC channels."""
    common: dict[str, Any] = {
        "model": model.name,
        "clients": CLIENTS,
        "pause_s": 0.02,
        "duration_s": 600,
        "channels": 2,
    }
    yield Load(address=model.kube.must_address(model.name, HTTP_PORT), protocol="http", **common)
    yield Load(address=model.kube.must_address(model.name, GRPC_PORT), protocol="grpc", **common)


@pytest.mark.parametrize("event", [event for event in EVENTS if event != KILLED])
def test_no_request_is_lost(costs: dict[str, Cost], event: str) -> None:
    assert costs[event].failures == {}
    assert costs[event].answered > 100


def test_a_killed_server_costs_at_most_what_it_was_computing(costs: dict[str, Cost]) -> None:
    # Of two servers one; those whose answer had not begun were sent to the other.
    assert sum(costs[KILLED].failures.values()) <= CLIENTS, costs[KILLED]
    assert costs[KILLED].answered > 100


class Streaming:
    """A stream to one pod: a message is sent when the one before it was answered."""

    def __init__(self, address: str, name: str) -> None:
        self.answers: list[str] = []
        self.sent = 0
        self.ended: InferenceServerException | None = None
        self.ended_s = 0.0
        """Of the monotonic clock."""
        self._address, self._name = address, name
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self, limit_s: float) -> None:
        self._thread.join(limit_s)

    def _run(self) -> None:
        responses: queue.Queue[tuple[Any, InferenceServerException | None]] = queue.Queue()
        tensor = grpc_client.InferInput("pixels", [1, 64], "FP32")
        tensor.set_data_from_numpy(np.ones((1, 64), np.float32))
        began_s = time.monotonic()
        with grpc_client.InferenceServerClient(self._address) as client:
            client.start_stream(lambda result, error: responses.put((result, error)))
            while self.ended is None and time.monotonic() - began_s < 60:
                try:
                    client.async_stream_infer(self._name, [tensor])
                except InferenceServerException:
                    # The stream ended between two messages, and the reason is in the queue.
                    self.ended = responses.get(timeout=30)[1]
                    break
                self.sent += 1
                result, self.ended = responses.get(timeout=30)
                if result is not None:
                    self.answers.append(bytes(result.as_numpy("WHO").flat[0]).decode())
                time.sleep(0.02)
            self.ended_s = time.monotonic()


@pytest.mark.usefixtures("costs")
def test_a_stream_goes_on_until_the_drain_is_over_and_is_told_that_its_pod_went(model: Model) -> None:
    stream = Streaming(model.kube.must_address(model.name, GRPC_PORT), model.name)
    wait_for(lambda: len(stream.answers) > 5, goal="the stream has answers", limit_s=10, every_s=0.05)
    (pod,) = set(stream.answers)
    deleted_s = time.monotonic()
    model.kube("delete", "pod", pod, "--wait=false")
    wait_for(
        lambda: agents.drains(model.kube, model.name, pod),
        goal="the balancers know that it goes",
        limit_s=10,
        every_s=0.05,
    )
    drained_s = time.monotonic()
    killed_at = model.killed_at(pod)
    stream.join(60)
    assert stream.ended is not None, stream.sent
    # Its time, and Triton heard of its end after that.
    assert deleted_s + DRAIN_S - 0.5 <= stream.ended_s <= drained_s + DRAIN_S + 3
    assert "UNAVAILABLE" in str(stream.ended.status()), (stream.ended, stream.ended_s - drained_s)
    assert set(stream.answers) == {pod}
    assert stream.sent - len(stream.answers) in {0, 1}, "each message was answered, but for one under way at the end"
    wait_for(lambda: pod not in model.names("server"), goal="the pod is gone", limit_s=60)
    assert time.time() < killed_at - 2, "no connection holds Triton's exit until its grace is over"
    model.wait_until_complete(without={pod})


@pytest.mark.usefixtures("costs")
def test_requests_wait_while_the_only_pod_is_replaced(model: Model) -> None:
    model.scale(1)
    with ExitStack() as stack:
        running = [stack.enter_context(RunningLoad(load)) for load in _loads(model)]
        for load in running:
            load.began_s()
        time.sleep(1)
        model.evict("server")
        time.sleep(1)
        reports = [load.stop() for load in running]
    for report in reports:
        assert report.failed == 0, report
        assert report.most_ms is not None
        assert report.most_ms > 500, "somebody waited for the other pod"
        assert len(report.who) == 2
