"""`limits.gpusPerNamespace` on a real API server, by a real operator: models that ask at the same moment pass it at no time.

The GPUs that count here are those that the Deployments of servers ask for, looked at all the time by a thread of its own.
"""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import pytest

from e2e.cluster.cluster import Cluster
from halcyon.kube import kinds
from halcyon.render import gpu
from tests.integration.hostile_scene import Kept
from tests.integration.operator_process import Operator, running
from tests.integration.operator_space import Object, Space, deployment, files
from tests.integration.waiting import until

pytestmark = pytest.mark.more

LIMIT = 4
MODELS = [f"m{n}" for n in range(10)]


@pytest.fixture(scope="module")
def operator(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """One whose site allows a namespace four GPUs."""
    directory = tmp_path_factory.mktemp("operator")
    policy = directory / "policy.json"
    policy.write_text(json.dumps({"limits": {"gpusPerNamespace": LIMIT}}))
    with running(cluster, directory, more=(f"--site-policy-file={policy}",)) as started:
        yield started


@pytest.fixture
def space(cluster: Cluster, namespace: str, operator: Operator) -> Iterator[Space]:
    """With a connection for each thread, and the files of a model."""
    assert operator.process is not None
    with closing(Kept(cluster.api.identity, cluster)) as api:
        space = Space(api, namespace)
        space.apply(files())
        yield space


@dataclass
class Counted:
    """GPUs of the Deployments of servers in a namespace."""

    space: Space
    most: int = 0
    looks: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)

    def now(self) -> int:
        """Those of this moment."""
        return sum(
            gpu.count(deployment["spec"]["template"]) * int(deployment["spec"]["replicas"])
            for deployment in self.space.every(kinds.DEPLOYMENT)
        )

    def run(self) -> None:
        """Look until `end`."""
        while not self._ended.is_set():
            self.most = max(self.most, self.now())
            self.looks += 1

    def end(self) -> None:
        """Look no more."""
        self._ended.set()


@contextmanager
def counted(space: Space) -> Iterator[Counted]:
    """The GPUs, counted all the while; they never were more than the limit."""
    gpus = Counted(space)
    with ThreadPoolExecutor(1) as thread:
        looking = thread.submit(gpus.run)
        try:
            yield gpus
        finally:
            gpus.end()
        looking.result()
    assert gpus.looks > 1
    assert gpus.most <= LIMIT


def model(name: str, gpus: int) -> Object:
    """A ModelDeployment of one replica."""
    return deployment(name, runtime={"gpu": {"count": gpus}})


def at_once(act: Callable[[str], None], names: list[str]) -> None:
    """Do it with all of them at the same moment."""
    together = threading.Barrier(len(names))

    def act_on(name: str) -> None:
        together.wait()
        act(name)

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(act_on, names))


def with_reason(space: Space, reason: str, names: list[str]) -> list[str]:
    """Models whose condition Accepted has this reason for the spec as it stands."""
    matching = []
    for name in names:
        resource = space.must(kinds.MODEL_DEPLOYMENT, name)
        status = resource.get("status") or {}
        reasons = [c["reason"] for c in status.get("conditions") or () if c["type"] == "Accepted"]
        current = status.get("observedGeneration") == resource["metadata"]["generation"]
        matching += [name] if current and reasons == [reason] else []
    return matching


def wait_decided(space: Space, names: list[str], accepted: int) -> tuple[list[str], list[str]]:
    """Until so many of them are accepted and the others are refused: both."""
    return until(
        lambda: (with_reason(space, "Accepted", names), with_reason(space, "PolicyDenied", names)),
        lambda decided: len(decided[0]) == accepted and len(decided[0]) + len(decided[1]) == len(names),
        goal=f"{accepted} of {len(names)} are accepted, and the others are refused",
    )


def test_models_created_at_once_stay_within_the_namespace_s_gpus(space: Space) -> None:
    with counted(space) as gpus:
        at_once(lambda name: space.apply(model(name, 1)), MODELS)
        accepted, refused = wait_decided(space, MODELS, LIMIT)
        until(gpus.now, lambda n: n == LIMIT, goal="those that were accepted are made")
        assert not [name for name in refused if space.get(kinds.DEPLOYMENT, f"{name}-a")]

        # What two of them leave is taken by two others, once it is free.
        at_once(lambda name: space.delete(kinds.MODEL_DEPLOYMENT, name), accepted[:2])
        left = [name for name in MODELS if name not in accepted[:2]]
        wait_decided(space, left, LIMIT)
        until(gpus.now, lambda n: n == LIMIT, goal="two others are made")


def test_models_that_grow_at_once_stay_within_the_namespaces_gpus(space: Space) -> None:
    three = MODELS[:3]
    with counted(space) as gpus:
        at_once(lambda name: space.apply(model(name, 1)), three)
        wait_decided(space, three, 3)
        until(gpus.now, lambda n: n == len(three), goal="all are made")
        at_once(lambda name: space.apply(model(name, 2)), three)
        (grown,), others = wait_decided(space, three, 1)
        until(gpus.now, lambda n: n == LIMIT, goal="one has grown")
        # Those that were refused ask for no more than before; then the other may have less, and one of them more.
        at_once(lambda name: space.apply(model(name, 1)), [grown, others[0]])
        wait_decided(space, three, 3)
