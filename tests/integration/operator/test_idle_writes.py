"""Twenty ModelDeployments at rest: what the operator writes (nothing but its Lease), and what it costs.

By default it is watched for 32 s, in which its periodic looks (30 s) fall; `HALCYON_FAULTS=all` watches 60 s.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster.cluster import Cluster
from halcyon.kube import kinds
from tests.integration.operator_process import Operator, install
from tests.integration.operator_space import Space, deployment, files
from tests.integration.waiting import always, rested, until

COUNT = 20
REST_S = 60.0 if os.environ.get("HALCYON_FAULTS") == "all" else 32.0
MAX_MIB = 150
QUIET_S = 11.0


@pytest.fixture
def operator(cluster: Cluster, tmp_path: Path) -> Iterator[Operator]:
    leader = Operator(install(cluster), "op-0", cluster.kubeconfig, tmp_path)
    leader.start()
    try:
        leader.wait_leading()
        yield leader
    finally:
        leader.stop()
    cluster.api.call("DELETE", f"/api/v1/namespaces/{leader.namespace}")


def memory_mib(operator: Operator, field: str) -> float:
    """A field of the process's status. Not its own ru_maxrss: that begins with the size of the process that started it."""
    lines = Path(f"/proc/{operator.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024


def test_twenty_idle_models_cause_no_writes_and_fit_into_150_mib(
    cluster: Cluster, namespace: str, operator: Operator
) -> None:
    space = Space(cluster.api, namespace)
    system = Space(cluster.api, operator.namespace)
    space.apply(files())
    names = [f"m{n}" for n in range(COUNT)]
    for name in names:
        # One balancer and one server each: the stand-in node has room for them all.
        space.apply(deployment(name, traffic={"balancerReplicas": 1}, scaling={"maxReplicas": 3, "actuator": "Direct"}))
    for name in names:
        space.wait_settled(name, limit_s=60)

    def written() -> tuple[float, object]:
        return operator.metrics()["halcyon_api_writes_total"], space.versions()

    # A status whose words alone have changed is written up to 10 s later.
    before = rested(written, for_s=QUIET_S, every_s=1)
    secret = system.must(kinds.SECRET, "halcyon-tls")["metadata"]["resourceVersion"]
    lease = system.must(kinds.LEASE, "halcyon")["metadata"]["resourceVersion"]
    always(
        lambda: operator.metrics()["halcyon_api_writes_total"],
        lambda n: n == before[0],
        goal="writes",
        for_s=REST_S,
        every_s=1,
    )
    assert written() == before
    assert system.must(kinds.SECRET, "halcyon-tls")["metadata"]["resourceVersion"] == secret
    assert system.must(kinds.LEASE, "halcyon")["metadata"]["resourceVersion"] != lease

    resident, peak = memory_mib(operator, "VmRSS"), memory_mib(operator, "VmHWM")
    print(f"operator with {COUNT} ModelDeployments: {resident:.0f} MiB resident, {peak:.0f} MiB at most")  # noqa: T201  # the figure of the test
    assert peak < MAX_MIB

    assert operator.stop() == 0
    operator.start()
    until(
        lambda: operator.metrics().get("halcyon_objects_skipped_total", 0),
        lambda n: n >= 10 * COUNT,
        goal="all are looked at",
    )
    assert written()[1] == before[1]
    assert operator.metrics()["halcyon_api_writes_total"] == 0
    assert not operator.complaints(), operator.complaints()
