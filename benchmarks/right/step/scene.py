"""One step on real Triton servers, HAProxys and agents, with the operator's store and planner in this process.

The plan of the balancers is the one that the operator renders for README's fields. Triton runs in all pods from the
beginning, and a pod becomes an endpoint `START_S` after it is ordered.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import step as step_on_pods
from benchmarks.background import in_background
from benchmarks.dataplane import tritons, ways
from benchmarks.dataplane.tritons import Work
from benchmarks.open_loop import Sent
from benchmarks.profile import Profile
from benchmarks.right import overload
from benchmarks.right.capacity import Autoscaler
from benchmarks.right.step.figures import Changes, Samples, batch_time_ratio
from halcyon.api.documents.balancer_plan import BalancerPlan
from halcyon.api.spec.parse import parse
from halcyon.render import balancer
from halcyon.render.names import SLOT_A
from halcyon.render.site import Site, Subject

LAW = overload.LAWS[0]
BALANCERS, CHANNELS = 2, 4
NAME = "m"
SPEC = parse(
    NAME,
    {
        "model": {"source": {"persistentVolumeClaim": {"claimName": "models"}}},
        "batching": {"maxBatchSize": LAW.max_batch},
        "scaling": {
            "minReplicas": 1,
            "maxReplicas": step_on_pods.MOST,
            "targets": {"latency": f"{LAW.objective_ms}ms"},
        },
    },
)
"""README's fields, and no others."""
STAND_INS = (
    "Triton's Python backend on CPU, whose execution is a sleep; the API server and the collector of the integration tests; "
    f"pods are Triton processes on loopback that become endpoints {step_on_pods.START_S:g} s after they are ordered; the "
    "operator's store and planner run in the measuring process"
)


@dataclass(frozen=True)
class Client:
    """The kind of clients of one run."""

    protocol: str = "grpc"
    repeats: int = 0
    """Maximum number of times that a client repeats a rejected request, a second after its rejection."""
    connections: str = "library"
    """Connections of HTTP requests (`e2e.load.settings.Load`)."""


def balancer_plan() -> BalancerPlan:
    """Return the plan of the model's balancers, as the operator renders it."""
    site = Site(operator_image="o", balancer_image="b", server_image="t", collector=None)
    subject = Subject("default", NAME, "0c8a9a4e-0000-4000-8000-000000000004")
    return balancer.plan(subject, SPEC, site, (SLOT_A,), start_s=step_on_pods.START_S)


async def measure(profile: Profile, *, seed: int, client: Client) -> Samples:
    """Offer this load to one pod behind two balancers, and scale it."""
    plan = balancer_plan()
    with tritons.running([Work(plan.model, LAW.t0_ms, LAW.a_ms, LAW.max_batch)] * step_on_pods.MOST) as servers:
        addresses = [server.address for server in servers]
        async with ways.balancers(BALANCERS, plan, addresses[:1]) as balancers:
            scaler = Autoscaler(balancers, addresses, time.monotonic(), spec=SPEC, start_s=step_on_pods.START_S)
            async with in_background(scaler.run()):
                sent = await overload.offer(
                    [balancer.http if client.protocol == "http" else balancer.grpc for balancer in balancers],
                    profile,
                    model=plan.model,
                    seed=seed,
                    protocol=client.protocol,
                    channels=CHANNELS // BALANCERS,
                    repeats=client.repeats,
                    connections=client.connections,
                )
            return samples(sent, scaler)


def samples(sent: Sequence[Sent], scaler: Autoscaler) -> Samples:
    """Return what the clients and the autoscaler recorded, on the clock of the load."""
    began_s = min(load.began_s for load in sent)
    requests = sorted(
        (
            (load.began_s - began_s + at_s, latency_s)
            for load in sent
            for at_s, latency_s in zip(load.at_s, load.latency_s, strict=True)
        ),
        key=lambda request: request[0],
    )
    failures: dict[str, int] = {}
    for load in sent:
        for kind, count in load.failures.items():
            failures[kind] = failures.get(kind, 0) + count

    def since(changes: Sequence[tuple[float, int]]) -> Changes:
        return tuple((round(scaler.began + at_s - began_s, 2), number) for at_s, number in changes)

    reports = [balancer.agent.collectors[0].records[-1][1] for balancer in scaler.balancers]
    batches = [size for pod in reports[0].pods if pod.batches is not None for size in pod.batches.sizes]
    balanced = [report.balancer for report in reports if report.balancer is not None]
    return Samples(
        arrivals_s=tuple(at_s for at_s, _ in requests),
        latency_s=tuple(latency_s for _, latency_s in requests),
        failures=failures,
        replicas=since([(0.0, 1), *scaler.counts]),
        ready=since(scaler.ready),
        late_sending_s=max(load.late_sending_s for load in sent),
        batch_time_ratio=batch_time_ratio(batches, LAW.t0_ms, LAW.a_ms),
        reported={
            "requests": sum(sample.requests for sample in balanced),
            "rejected": sum(sample.rejected for sample in balanced),
        },
    )
