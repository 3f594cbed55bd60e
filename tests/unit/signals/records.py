"""Short builders for reports."""

from __future__ import annotations

from typing import Any

from halcyon.api.documents.observation_report import AgentReport, BalancerSample, PodSample

EPOCH = 1_763_700_000.0
"""Time of the agents' clocks when the operator's monotonic clock is 0."""


def haproxy(queued: int = 0, *, requests: int = 0, refused: int = 0, inflight: int = 0) -> BalancerSample:
    return BalancerSample(queued, inflight, requests, refused, 0)


def triton(name: str = "m-a-0", state: Any = "ready", *, at: float = 0.0, **values: Any) -> PodSample:
    return PodSample(name, state, EPOCH + at, **{"pending": 0, "gpu": 0.5, "succeeded": 0, "rows": 0, **values})


def record(
    at: float,
    *pods: PodSample,
    agent: str = "m-balancer-0",
    balancer: BalancerSample | None = None,
    skew: float = 0.0,
    **rest: Any,
) -> AgentReport:
    """Return a report made at `at`.

    `skew` is the error of the agent's clock, which also shifts the times of its samples.
    """
    samples = tuple(PodSample(**{**vars(pod), "at": pod.at + skew}) for pod in pods)
    seen = haproxy() if balancer is None else balancer
    return AgentReport(
        **{"namespace": "ns", "name": "m", "balancer": seen, **rest}, agent=agent, at=EPOCH + at + skew, pods=samples
    )
