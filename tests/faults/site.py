"""The installation under test: API server, proxy, ledger, and one operator at a time."""

from __future__ import annotations

import math
import signal
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from e2e.cluster import pki
from e2e.cluster.cluster import Cluster
from halcyon.kube import kinds
from tests.faults.forks import ForkedOperator, Forks
from tests.faults.ledger import Ledger
from tests.faults.load import Load
from tests.faults.oracles import Outcome, canonical
from tests.integration.hostile_scene import Kept
from tests.integration.operator_process import IMAGES, install
from tests.integration.operator_space import Object, Space
from tests.integration.proxy import Door, Proxy, Rule, no_fault
from tests.integration.waiting import PATIENCE, until
from tests.integration.watch_faults import EventRule
from tests.ports import free_ports

_FOREIGN: tuple[tuple[str, Object], ...] = (
    ("configmaps", {"metadata": {"name": "m-notes"}, "data": {"of": "a user"}}),
    ("services", {"metadata": {"name": "m-other"}, "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}}),
    ("serviceaccounts", {"metadata": {"name": "m-robot", "labels": {"app.kubernetes.io/name": "m"}}}),
    ("secrets", {"metadata": {"name": "m-password"}, "data": {"password": "cGFzc3dvcmQ="}}),
)
"""Objects of others in each namespace, with names that look like those of the model's objects."""


_GPUS = "gpus-for-faults"
"""Node with GPUs for all models of a wave, so that no pod of one waits for another's."""
_AT_ONCE = 4
"""Number of namespaces that are created at once."""


class Standstills:
    """The times at which this process stood still, a context manager with a thread.

    A suspended or very busy machine makes leases expire and steps late, without a mistake of the operator.
    """

    LIMIT_S = 3.0
    """Time without a turn, after which the machine stood still. An operator's lease has as much room."""

    def __init__(self, *, limit_s: float = LIMIT_S) -> None:
        self._limit_s, self._last = limit_s, -math.inf
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def since(self, began: float) -> bool:
        """Return whether the process stood still after a monotonic time."""
        return self._last >= began

    def _run(self) -> None:
        turn = time.monotonic()
        while not self._stop.wait(self._limit_s / 10):
            now = time.monotonic()
            if now - turn > self._limit_s:
                self._last = now
            turn = now


@dataclass
class Site:
    """The installation, with namespaces to work in."""

    cluster: Cluster
    api: Kept
    proxy: Proxy
    ledger: Ledger
    forks: Forks
    directory: Path
    namespace: str
    standstills: Standstills
    port: int = field(default_factory=lambda: free_ports(1)[0])
    """Port of the operator, which is part of the plan of each balancer."""
    spaces: list[Space] = field(default_factory=list)
    operators: list[ForkedOperator] = field(default_factory=list)
    foreign: dict[str, dict[str, str]] = field(default_factory=dict)
    """Versions of the objects of others, by namespace and path."""

    def space(self) -> Space:
        """Create a namespace with objects of others."""
        space = Space(self.api, f"f-{uuid.uuid4().hex[:8]}")
        space.make()
        self.spaces.append(space)
        path = f"/api/v1/namespaces/{space.namespace}"
        until(lambda: self.api.exists(f"{path}/serviceaccounts/default"), bool, goal="the namespace is ready")
        for plural, body in _FOREIGN:
            self.api.create(f"{path}/{plural}", body)
        self.foreign[space.namespace] = self._versions(space)
        return space

    def spaces_for(self, count: int) -> list[Space]:
        """Create several namespaces at once."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(lambda _: self.space(), range(count)))

    def _versions(self, space: Space) -> dict[str, str]:
        versions = {}
        for plural, body in _FOREIGN:
            path = f"/api/v1/namespaces/{space.namespace}/{plural}/{body['metadata']['name']}"
            meta = (self.api.call("GET", path).body or {}).get("metadata", {})
            versions[path] = f"{meta.get('uid')} {meta.get('resourceVersion')}"
        return versions

    def touched(self, space: Space) -> list[str]:
        """Return the paths of objects of others that were changed or deleted, unless the namespace was deleted."""
        if not self.api.exists(f"/api/v1/namespaces/{space.namespace}"):
            return []
        now = self._versions(space)
        return [path for path, version in self.foreign[space.namespace].items() if now[path] != version]

    def start(
        self,
        rule: Rule = no_fault,
        *,
        watch: str = "",
        in_turn: bool = False,
        images: tuple[str, ...] = IMAGES,
        events: EventRule | None = None,
        more: tuple[str, ...] = (),
    ) -> tuple[ForkedOperator, Door]:
        """Start an operator behind a door. It has the name of the one before, so the lease is its own at once."""
        started = threading.Event()
        operator = ForkedOperator(
            self.namespace, "op-0", Path(), self.directory, watch, more, port=self.port, images=images, forks=self.forks
        )

        def kill() -> None:
            started.wait(5 * PATIENCE)
            operator.signal(signal.SIGKILL)

        door = self.proxy.open(rule, kill=kill, in_turn=in_turn)
        door.events = events
        operator.kubeconfig = door.kubeconfig
        operator.start()
        started.set()
        self.operators.append(operator)
        return operator, door

    def outcomes(self, spaces: Sequence[Space]) -> list[Outcome]:
        """Return the end state of each namespace, and what was created and deleted in it."""
        words = {self.namespace: "INSTALLATION", str(self.port): "10000"}
        objects = self.ledger.objects([space.namespace for space in spaces])
        return [
            Outcome(canonical(objects[space.namespace], space.namespace, words), self.ledger.counts(space.namespace))
            for space in spaces
        ]

    def kill(self) -> None:
        """Kill the operators that still run."""
        for operator in self.operators:
            if operator.process is not None:
                operator.process.kill()
        self.operators.clear()

    def leave(self) -> None:
        """Kill the operators that still run, and delete the namespaces that were created so far."""
        self.kill()
        for space in self.spaces:
            if space.namespace in Load.running:
                Load.stop(space)
            space.end()
        self.spaces.clear()

    def version(self) -> str:
        """Return the API server's newest resource version."""
        listed = self.api.call("GET", f"{kinds.CONFIG_MAP.path('default')}?limit=1").body
        assert listed is not None
        return str(listed["metadata"]["resourceVersion"])

    def end(self) -> None:
        """Kill what still runs, and delete the namespaces."""
        self.leave()
        self.api.call("DELETE", f"/api/v1/namespaces/{self.namespace}")
        self.api.call("DELETE", f"/api/v1/nodes/{_GPUS}")


@contextmanager
def site(cluster: Cluster, directory: Path) -> Iterator[Site]:
    """Install on a cluster, for as long as the context is open."""
    with ExitStack() as stack:
        api = Kept(cluster.api.identity, cluster)
        stack.callback(api.close)
        namespace = install(cluster)
        room = {"cpu": "640", "memory": "5Ti", "ephemeral-storage": "9Ti", "pods": "2000", "nvidia.com/gpu": "1000"}
        meta = {"name": _GPUS, "labels": {"kubernetes.io/os": "linux"}}
        api.create("/api/v1/nodes", {"metadata": meta, "status": {"capacity": room, "allocatable": room}})
        proxy = stack.enter_context(Proxy(pki.admin(cluster.place, cluster.network)))
        ledger = stack.enter_context(Ledger(api))
        forks = stack.enter_context(Forks())
        standstills = stack.enter_context(Standstills())
        installation = Site(cluster, api, proxy, ledger, forks, directory, namespace, standstills)
        stack.callback(installation.end)
        yield installation
