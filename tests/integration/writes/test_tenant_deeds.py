"""A tenant changes the operator's objects in its own namespace without end: no other model notices."""

import threading
import time
import uuid
from contextlib import closing
from pathlib import Path

import pytest

from e2e.cluster.cluster import Cluster
from halcyon.kube import kinds
from tests.adversary.tenant.writes_deeds import DEEDS, MANY, SCALING
from tests.integration.hostile_scene import Kept
from tests.integration.operator_process import running
from tests.integration.operator_space import Space, deployment, files
from tests.integration.waiting import rested, until

pytestmark = pytest.mark.more

VICTIMS = 5
DEEDS_S = 20.0
MAX_SETTLE_S = 20.0
"""Time for a change of a victim's spec during the deeds. Undisturbed it takes 2 s on a busy machine."""
MAX_GROWTH_MIB = 40.0
_CHANGING = {kind.kind for kind in (kinds.MODEL_DEPLOYMENT, kinds.EVENT, kinds.HPA)}


def _versions(space: Space) -> dict[tuple[str, str], str]:
    """Versions of what models consist of. Statuses, events and HPAs change with time."""
    return {key: version for key, version in space.versions().items() if key[0] not in _CHANGING}


def test_deeds_of_a_tenant_reach_its_own_models_alone(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    tenant, others = Space(cluster.api, namespace), Space(cluster.api, f"t-{uuid.uuid4().hex[:8]}")
    others.make()
    mine, theirs = [f"d{number}" for number in range(len(DEEDS))], [f"v{number}" for number in range(VICTIMS)]
    with running(cluster, tmp_path) as operator:
        try:
            for space, names in ((tenant, mine), (others, theirs)):
                space.apply(files(), *(deployment(name, scaling=SCALING) for name in names))
            for space, names in ((others, theirs), (tenant, mine)):
                for name in names:
                    space.wait_settled(name, limit_s=90)
            before = rested(lambda: _versions(others), for_s=3)
            memory = operator.metrics()["process_resident_memory_bytes"]
            stop, failures, rounds = threading.Event(), list[str](), dict.fromkeys(mine, 0)

            def act(name: str, number: int) -> None:
                with closing(Kept(cluster.api.identity, cluster)) as api:
                    own = Space(api, namespace)
                    while not stop.is_set():
                        try:
                            DEEDS[number](own, name)
                        except Exception as error:  # noqa: BLE001  # a deed that fails must fail the test
                            failures.append(f"{DEEDS[number].__name__}: {error!r}")
                            return
                        rounds[name] += 1
                        time.sleep(0.05)

            threads = [threading.Thread(target=act, args=(name, number)) for number, name in enumerate(mine)]
            for thread in threads:
                thread.start()
            time.sleep(DEEDS_S / 2)
            untouched = _versions(others)
            others.apply(deployment(theirs[0], scaling=SCALING, traffic={"queueLimit": 50}))
            others.wait_settled(theirs[0], limit_s=MAX_SETTLE_S)
            most = max(tenant.replicas(name) for name in mine if tenant.get(kinds.DEPLOYMENT, f"{name}-a"))
            time.sleep(DEEDS_S / 2)
            stop.set()
            for thread in threads:
                thread.join(30)

            assert failures == []
            assert all(count >= 5 for count in rounds.values()), rounds
            assert untouched == before
            assert most < MANY
            after = operator.metrics()["process_resident_memory_bytes"]
            assert (after - memory) / 2**20 < MAX_GROWTH_MIB
            assert operator.process is not None
            assert operator.process.poll() is None
            # What the tenant put in the place of children is still the tenant's.
            account = until(
                lambda: tenant.condition("Accepted", mine[DEEDS_INDEX]),
                lambda condition: condition[0] == "False",
                goal="the tenant is told of its own object",
                limit_s=60,
            )
            assert account[1] == "Conflict"
        finally:
            others.end()


DEEDS_INDEX = [deed.__name__ for deed in DEEDS].index("take_service_account")
