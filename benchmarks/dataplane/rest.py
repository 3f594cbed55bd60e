"""Part `rest`: resource usage of a balancer pod: its memory after a load, and its agent's CPU without requests."""

import time
from pathlib import Path
from typing import Any

from benchmarks.cost import cpu_s
from benchmarks.dataplane import stage
from benchmarks.dataplane.results import PartResults
from benchmarks.errors import BenchError
from demo.kube import Kube
from demo.models import GRPC_PORT
from e2e.cluster.progress import say
from e2e.load import process
from e2e.load.settings import Load
from e2e.scenarios import processes

_CLIENTS = 32
_SETTLE_S = 5.0
_BALANCERS, _SERVERS = 2, 2


def run(kube: Kube, *, short: bool) -> PartResults:
    """Run the part. Full: 20 s of load and 60 s of rest. Short: 5 s and 15 s."""
    load_s, rest_s = (5.0, 15.0) if short else (20.0, 60.0)
    with stage.served(kube, stage.digits("rest", replicas=_SERVERS, balancers=_BALANCERS), replicas=_SERVERS) as name:
        address = kube.must_address(name, GRPC_PORT)
        report = process.run(Load(address=address, model=name, clients=_CLIENTS, duration_s=load_s))
        pods = kube.pods(name, "balancer")
        sizes = [memory_mib(pod) for pod in pods]
        say(f"bench: {report.rate_rps}/s; memory of the balancer pods {sizes}")
        time.sleep(_SETTLE_S)  # the agents have worked off what the load left
        agents = _cores(pods, "halcyon agent", rest_s)
        haproxies = _cores(pods, "haproxy", rest_s / 3)
    largest = max(sizes, key=lambda size: size["rss"])
    return PartResults(
        figures={"agent_idle_cores": round(max(agents), 4), "rss_mib": largest["rss"]},
        details={
            "rss_mib_by_program": largest,
            "load_rps": report.rate_rps,
            "idle_s": rest_s,
            "haproxy_idle_cores": round(max(haproxies), 4),
            "servers": _SERVERS,
            "balancers": _BALANCERS,
        },
    )


def memory_mib(pod: dict[str, Any]) -> dict[str, float]:
    """Return the resident memory of a pod's processes. `rss` is the sum; `pss` counts shared pages once."""
    memory = {"agent": 0.0, "haproxy": 0.0, "pss": 0.0}
    for program, pattern in (("agent", "halcyon agent"), ("haproxy", "haproxy")):
        for pid in _pids(pod, pattern):
            memory[program] += _kib(Path(f"/proc/{pid}/status"), "VmRSS:") / 1024
            memory["pss"] += _kib(Path(f"/proc/{pid}/smaps_rollup"), "Pss:") / 1024
    memory["rss"] = memory["agent"] + memory["haproxy"]
    return {name: round(size, 1) for name, size in memory.items()}


def _kib(file: Path, field: str) -> int:
    return next(int(line.split()[1]) for line in file.read_text().splitlines() if line.startswith(field))


def _pids(pod: dict[str, Any], pattern: str) -> list[int]:
    if pattern == "haproxy":
        return processes.in_pod(pod, lambda command: command.startswith("haproxy"))
    return processes.in_pod(pod, lambda command: pattern in command)


def _cores(pods: list[dict[str, Any]], pattern: str, for_s: float) -> list[float]:
    """Return the CPU usage of a program in each pod over `for_s` seconds, as a share of one core."""
    pids = [_pids(pod, pattern) for pod in pods]
    if not pids or not all(pids):
        raise BenchError(f"no process `{pattern}` in a balancer pod; is this machine the cluster's node?")
    before, began_s = [sum(map(cpu_s, pod_pids)) for pod_pids in pids], time.monotonic()
    time.sleep(for_s)
    seconds = time.monotonic() - began_s
    return [(sum(map(cpu_s, pod_pids)) - spent) / seconds for pod_pids, spent in zip(pids, before, strict=True)]
