"""Requests are shared between pods, and survive the death of each part on their way."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from demo import models, serving
from demo.kube import PATIENCE, Kube, is_ready, total, wait_for
from demo.models import GRPC_PORT
from e2e.load.process import RunningLoad
from e2e.load.settings import Load
from e2e.scenarios import agents, processes
from halcyon.render.names import AGENT_PORT

THREE = "three"
CLIENTS = 12


@pytest.fixture(scope="module")
def three(served: Callable[..., str]) -> str:
    """Serve three servers behind two balancers."""
    document = models.variant(THREE, replicas=3, gpus=0)
    document["spec"]["traffic"] = {"balancerReplicas": 2}
    return served(document, replicas=3)


@pytest.fixture
def complete_model(kube: Kube, three: str) -> str:
    """Wait until the model has all its pods again after the previous test, and all balancers use them."""
    wait_for(lambda: _is_complete(kube, three), goal=f"{three} has all pods", limit_s=60)
    wait_for(lambda: _is_used_by_all(kube, three), goal=f"all balancers of {three} use all servers", limit_s=30)
    return three


def _is_complete(kube: Kube, name: str) -> bool:
    servers, balancers = kube.pods(name, "server"), kube.pods(name, "balancer")
    return len(servers) == 3 and len(balancers) == 2 and all(map(is_ready, [*servers, *balancers]))


def _is_used_by_all(kube: Kube, name: str) -> bool:
    ready = dict.fromkeys(_names(kube.pods(name, "server")), "ready")
    return all(states == ready for states in agents.states(kube, name))


def _load(kube: Kube, name: str, **settings: Any) -> RunningLoad:
    address = kube.must_address(name, GRPC_PORT)
    return RunningLoad(Load(address=address, model=name, clients=CLIENTS, duration_s=600, **settings))


def _names(pods: list[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods}


def test_one_long_lived_channel_is_shared_by_three_pods(kube: Kube, complete_model: str) -> None:
    report = serving.load_single_channel(kube, complete_model, duration_s=6)
    assert report.failed == 0, report
    assert len(report.shares) == 3
    assert all(0.25 <= share <= 0.42 for share in report.shares), report.shares


def test_no_request_is_lost_when_a_pod_is_deleted_under_load(kube: Kube, complete_model: str) -> None:
    deleted = kube.pods(complete_model, "server")[0]["metadata"]["name"]
    with _load(kube, complete_model) as load:
        load.began_s()
        time.sleep(1)
        kube("delete", "pod", deleted, "--wait=false")
        wait_for(
            lambda: deleted not in _names(kube.pods(complete_model, "server")) and _is_complete(kube, complete_model),
            goal="another pod takes its place",
            limit_s=60,
        )
        new = _names(kube.pods(complete_model, "server"))
        wait_for(lambda: load.latest is not None and new <= load.latest.who.keys(), goal="all three answer", limit_s=30)
        report = load.stop()
    assert report.failed == 0, report
    assert deleted in report.who
    assert len(report.who) == 4


def test_no_request_is_lost_when_an_agent_is_killed(kube: Kube, complete_model: str) -> None:
    balancer = kube.pods(complete_model, "balancer")[0]
    with _load(kube, complete_model) as load:
        load.began_s()
        time.sleep(1)
        assert processes.kill(balancer, lambda command: "halcyon agent" in command) == 1
        _wait_for_restart(kube, complete_model, balancer, "agent")
        time.sleep(1)
        report = load.stop()
    assert report.failed == 0, report


def test_a_killed_haproxy_costs_what_is_under_way_and_no_more(kube: Kube, complete_model: str) -> None:
    balancer = kube.pods(complete_model, "balancer")[0]
    with _load(kube, complete_model) as load:
        load.began_s()
        time.sleep(1)
        assert processes.kill(balancer, lambda command: command.startswith("haproxy")) >= 1
        _wait_for_restart(kube, complete_model, balancer, "haproxy")
        time.sleep(1)
        report = load.stop()
    # What is under way in that process is lost. After that clients are refused, until kube-proxy knows that the pod isn't ready or
    # HAProxy is up again, whichever is first; they go on to ask, so the time counts and not the number.
    assert report.answered > report.failed, report
    if report.first_failed_s is not None and report.last_failed_s is not None:
        assert report.last_failed_s - report.first_failed_s <= 3 * PATIENCE, report


def _wait_for_restart(kube: Kube, name: str, pod: dict[str, Any], container: str) -> None:
    before = processes.restarts(pod, container)

    def restarted() -> bool:
        current = next((p for p in kube.pods(name, "balancer") if p["metadata"]["uid"] == pod["metadata"]["uid"]), None)
        return current is not None and is_ready(current) and processes.restarts(current, container) > before

    wait_for(restarted, goal=f"{container} of {pod['metadata']['name']} is up again", limit_s=60)


def test_a_pod_whose_python_stub_died_is_out_and_restarts_in_place(kube: Kube, complete_model: str) -> None:
    _kill_a_stub(kube, complete_model)


def test_the_only_pod_whose_python_stub_died_restarts_in_place(kube: Kube, served: Callable[..., str]) -> None:
    document = models.variant("lonely", replicas=1, gpus=0)
    document["spec"]["traffic"] = {"balancerReplicas": 2}
    name = served(document, replicas=1)
    _kill_a_stub(kube, name)


def _kill_a_stub(kube: Kube, model: str) -> None:
    dead = kube.pods(model, "server")[0]
    name = dead["metadata"]["name"]
    with _load(kube, model) as load:
        load.began_s()
        time.sleep(2)
        assert processes.kill(dead, lambda command: "triton_python_backend_stub" in command) >= 1
        killed_s = time.monotonic()
        wait_for(lambda: _is_out_of_rotation(kube, model, name), goal="it is taken out", limit_s=10, every_s=0.05)
        out_after_s = time.monotonic() - killed_s

        def current_pod() -> dict[str, Any]:
            return next(p for p in kube.pods(model, "server") if p["metadata"]["uid"] == dead["metadata"]["uid"])

        before = processes.restarts(dead, "triton")
        wait_for(
            lambda: processes.restarts(current_pod(), "triton") > before,
            goal="its container restarts",
            limit_s=30,
            every_s=0.1,
        )
        restarted_after_s = time.monotonic() - killed_s
        wait_for(lambda: is_ready(current_pod()), goal="it is ready again", limit_s=60)
        time.sleep(2)
        report = load.stop()
    print(f"{model}: out after {out_after_s:.1f} s, restarted after {restarted_after_s:.1f} s")
    assert report.failed > 0, "Triton is said to fail such requests"
    assert report.first_failed_s is not None
    assert report.last_failed_s is not None
    # Triton needs a second to fail a request, so those sent just before the pod was out are known to have failed later.
    assert report.last_failed_s - report.first_failed_s <= (3.0 + 1.0) * PATIENCE, (report, out_after_s)
    assert restarted_after_s - out_after_s <= 10.0 * PATIENCE, (out_after_s, restarted_after_s)
    state = next(c for c in current_pod()["status"]["containerStatuses"] if c["name"] == "triton")["lastState"][
        "terminated"
    ]
    assert "a Python stub process ended: signal-9" in state["message"], state
    events = kube("get", "events", "-o", "jsonpath={range .items[*]}{.reason} {.message}{'\\n'}{end}")
    assert any("BackendDied" in line and name in line and "signal 9" in line for line in events.splitlines()), events


def _is_out_of_rotation(kube: Kube, name: str, pod: str) -> bool:
    """Return True if an agent has taken the pod out of rotation, or if it already restarts."""
    server = next(p for p in kube.pods(name, "server") if p["metadata"]["name"] == pod)
    return not is_ready(server) or any(
        total(kube.metrics(balancer, AGENT_PORT), "halcyon_agent_maintenance") >= 1
        for balancer in kube.pods(name, "balancer")
    )
