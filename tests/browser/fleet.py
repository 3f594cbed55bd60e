"""5,000 models in a real API server, with the status that an earlier operator wrote, and two standby operators.

The models are not reconciled: the lease belongs to a replica that doesn't exist, and expires after the tests.
"""

import contextlib
import http.client
import json
import os
import random
import ssl
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from e2e.cluster.cluster import Cluster
from halcyon.kube import kinds
from tests.integration.operator_process import Operator, install
from tests.integration.operator_space import MERGE, deployment
from tests.integration.waiting import until
from tests.ports import free_ports

Object = dict[str, Any]
MODELS = 5000
SPACES = tuple(f"team-{letter}" for letter in "abcdefghij")
WRITERS = 8


@dataclass(frozen=True)
class Fleet:
    """The models and the operators."""

    cluster: Cluster
    shows: Operator
    """Operator with the dashboard."""
    plain: Operator
    """Operator without the dashboard."""

    @property
    def url(self) -> str:
        """Return the URL of the dashboard."""
        return url(self.shows)


def url(operator: Operator) -> str:
    """Return the URL of an operator's dashboard."""
    port = next(argument.partition("=")[2] for argument in operator.more if argument.startswith("--dashboard-port="))
    return f"http://localhost:{port}/"


def resident_mib(operator: Operator) -> float:
    """Return the resident memory of the operator's process, in MiB."""
    pages = int(Path(f"/proc/{operator.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def cpu_s(operator: Operator) -> float:
    """Return the CPU time that the operator's process has used so far, in seconds."""
    fields = Path(f"/proc/{operator.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def filled(cluster: Cluster, directory: Path) -> Iterator[Fleet]:
    """Create the fleet, which is removed together with the cluster."""
    namespace = install(cluster)
    lease = {"holderIdentity": "of-another-time", "leaseDurationSeconds": 36000, "leaseTransitions": 0}
    cluster.api.create(kinds.LEASE.path(namespace), {"metadata": {"name": "halcyon"}, "spec": lease})
    _fill(cluster)
    more = ("--dashboard=localhost", f"--dashboard-port={free_ports(1)[0]}")
    plain = Operator(namespace, "plain", cluster.kubeconfig, directory)
    shows = Operator(namespace, "shows", cluster.kubeconfig, directory, more=more)
    try:
        for operator in (plain, shows):
            operator.start()
        for operator in (plain, shows):
            until(
                lambda operator=operator: operator.metrics().get("halcyon_model_deployments"),  # type: ignore[misc]
                lambda count: (count or 0) >= MODELS,
                goal=f"{operator.name} knows the fleet",
                limit_s=60,
                context=operator.tail,
            )
        until(lambda: shows.logged("serving the dashboard"), bool, goal="the dashboard is served", context=shows.tail)
        yield Fleet(cluster, shows, plain)
        assert not shows.complaints(), shows.complaints()
    finally:
        for operator in (shows, plain):
            operator.stop()


def _fill(cluster: Cluster) -> None:
    for space in SPACES:
        cluster.api.create("/api/v1/namespaces", {"metadata": {"name": space}})
    numbers = [range(first, MODELS, WRITERS) for first in range(WRITERS)]
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(lambda part: _write(cluster, part), numbers))


def _write(cluster: Cluster, numbers: Iterable[int]) -> None:
    identity = cluster.api.identity
    context = ssl.create_default_context(cafile=str(identity.ca))
    context.load_cert_chain(identity.certificate, identity.key)
    address = urlsplit(identity.url)
    connection = http.client.HTTPSConnection(address.hostname or "", address.port, timeout=60, context=context)
    with contextlib.closing(connection):

        def send(method: str, path: str, body: Object, kind: str) -> None:
            connection.request(method, path, json.dumps(body), {"Content-Type": kind})
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status in {200, 201}, text

        for number in numbers:
            space, manifest, status = model(number)
            send("POST", kinds.MODEL_DEPLOYMENT.path(space), manifest, "application/json")
            path = kinds.MODEL_DEPLOYMENT.path(space, manifest["metadata"]["name"], "status")
            send("PATCH", path, {"status": status}, MERGE)


def model(number: int) -> tuple[str, Object, Object]:
    """Return namespace, object and status of the model with this number. The result is always the same."""
    draw = random.Random(number)
    most, count = draw.choice([4, 8, 16, 32]), draw.randint(0, 4)
    words = [draw.choice(["resnet", "bert", "whisper", "ranker", "detector", "embedder"]), f"{number:04}"]
    scaling = {"minReplicas": 0, "maxReplicas": most}
    manifest = deployment("-".join(words), replicas=count, scaling=scaling)
    ready = count if draw.random() < 0.95 else max(count - 1, 0)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1767268800))

    def condition(kind: str, *, good: bool, reason: str, message: str) -> Object:
        fields = {"type": kind, "status": "True" if good else "False", "reason": reason, "message": message}
        return fields | {"observedGeneration": 1, "lastTransitionTime": stamp}

    good = draw.random() < 0.97
    error = "model can't be loaded: unexpected end of file. Look at spec.model.source"
    conditions = [
        condition("Ready", good=True, reason="Ready", message=f"{ready} of {count} servers are ready")
        if good
        else condition("Ready", good=False, reason="LoadFailed", message=error)
    ]
    if not good:
        conditions.append(condition("Stalled", good=True, reason="LoadFailed", message=error))
    waiting = draw.randint(0, 40) if count else 0
    why = f"{count} replicas: {12 * count + 3} requests/s at 50 ms need {count}"
    return (
        SPACES[number % len(SPACES)],
        manifest,
        {
            "observedGeneration": 1,
            "conditions": conditions,
            "replicas": count,
            "readyReplicas": ready,
            "pods": {"total": count, "ready": ready, "updated": count, "unschedulable": 0},
            "summary": {
                "state": "LoadFailed" if not good else "Ready" if count else "ScaledToZero",
                "ready": f"{ready}/{count}",
                "queue": f"{waiting}/{16 * max(ready, 1)}",
            },
            "scaling": {
                "actuator": "Direct",
                "actuatorReason": "spec.scaling.actuator is Direct",
                "policy": "Planner",
                "mode": "Active",
                "desired": count,
                "current": count,
                "why": why,
                "decisions": [{"time": stamp, "before": 1, "after": count, "why": why}],
            },
        },
    )
