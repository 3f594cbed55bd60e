"""The agent's report while a lower class has requests in pods: the planner reads the users' load alone."""

from __future__ import annotations

from halcyon.api.documents.observation_report import AgentReport, BalancerSample, PodSample
from halcyon.balancer.runtime.concurrency import Concurrency
from halcyon.balancer.runtime.shares import BalancerLoad, Elsewhere, PodLoad
from halcyon.balancer.telemetry.balancer_sample import users_report

POD = PodSample("p", "ready", 1.0, pending=8, succeeded=100, rows=800, executions=50, gpu=0.8, engine_used=0.5)
REPORT = AgentReport("ns", "m", "m-balancer-x", 1.5, BalancerSample(1, 2, 3, 4, 5), (POD, PodSample("q", "ready", 1.0)))


def load(agent: str, inflight: int, lower: int, sent: int) -> BalancerLoad:
    return BalancerLoad(agent, pods={"10.0.0.1": PodLoad((inflight, 0), (16, 16))}, lower=lower, lower_sent=sent)


def test_without_a_lower_class_the_report_stays_as_it_is() -> None:
    concurrency = Concurrency("a")
    concurrency.own = load("a", 4, 0, 0)
    assert concurrency.users_part is None
    assert users_report(REPORT, concurrency.users_part) is REPORT


def test_the_users_part_of_queue_and_gpu_is_reported() -> None:
    concurrency = Concurrency("a")
    concurrency.own, concurrency.others = load("a", 4, 9, 3), (load("b", 4, 0, 3),)
    assert concurrency.users_part == 0.25
    report = users_report(REPORT, concurrency.users_part)
    first, second = report.pods
    assert (first.pending, first.gpu, first.engine_used, first.rows) == (2, 0.2, 0.125, None)
    # Missing is not zero, and what is counted of executions stays.
    assert (second.pending, second.gpu) == (None, None)
    assert (first.succeeded, first.executions) == (100, 50)
    assert report.balancer == REPORT.balancer


def test_requests_of_the_lower_class_elsewhere_leave_no_less_for_users() -> None:
    concurrency = Concurrency("a")
    concurrency.others = (load("b", 6, 9, 4),)
    assert concurrency.elsewhere(2) == Elsewhere(inflight=2)
