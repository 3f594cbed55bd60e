"""What planners have learnt, in ConfigMaps of a real API server, with the rights that this takes and no others."""

import random
import time
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typing_extensions import override

from e2e.cluster.cluster import Cluster
from halcyon.control.autoscaling.planner_memory.entries import Saved
from halcyon.control.autoscaling.planner_memory.shards import entry_name, shard_count, shard_name
from halcyon.control.autoscaling.planner_memory_store import PlannerMemoryStore, Shards
from halcyon.control.state.cluster_state import OURS
from halcyon.kube.client import Kube, KubeClient, Object, connect
from halcyon.kube.clock import SYSTEM_CLOCK
from halcyon.kube.kinds import CONFIG_MAP, ROLE, ROLE_BINDING, SERVICE_ACCOUNT, Key, Kind
from halcyon.scaling.planner.outputs import PlannerMemory
from halcyon.scaling.planner.serialization import packed, resumed
from tests.integration.operator.test_leader_election import token
from tests.integration.operator_space import Space
from tests.integration.waiting import until
from tests.unit.scaling.planner.test_serialization import EPOCH, WEEKS

pytestmark = pytest.mark.more

VERBS = ["get", "list", "create", "patch", "delete"]
ACCOUNT = "keeper"


class Killed(Exception):  # noqa: N818  # no error: the process is gone
    """The process is killed."""


class Mortal(KubeClient):
    """A client whose process is killed before it has written so often."""

    left = 0

    @override
    async def apply(self, kind: Kind, obj: Object, **options: Any) -> Object:
        if self.left == 0:
            raise Killed
        self.left -= 1
        return await super().apply(kind, obj, **options)


@pytest.fixture
def space(cluster: Cluster, namespace: str) -> Space:
    """A namespace whose account may do with ConfigMaps what keeping memories takes, and nothing anywhere else."""
    api = cluster.api
    api.create(SERVICE_ACCOUNT.path(namespace), {"metadata": {"name": ACCOUNT}})
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": VERBS}]
    api.create(ROLE.path(namespace), {"metadata": {"name": ACCOUNT}, "rules": rules})
    binding = {
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}],
    }
    api.create(ROLE_BINDING.path(namespace), binding)
    review = {
        "spec": {
            "user": f"system:serviceaccount:{namespace}:{ACCOUNT}",
            "resourceAttributes": {"namespace": namespace, "verb": "list", "resource": "configmaps"},
        }
    }
    until(
        lambda: api.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review).body or {},
        lambda review: review.get("status", {}).get("allowed"),
        goal="the binding counts",
    )
    return Space(api, namespace)


@pytest.fixture
async def client(cluster: Cluster, space: Space, tmp_path: Path) -> AsyncIterator[KubeClient]:
    """The account's."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"] = [{"name": user["name"], "user": {"token": token(space, ACCOUNT)}} for user in config["users"]]
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    client = await connect(str(path))
    yield client
    await client.close()


def learnt(number: int) -> PlannerMemory:
    """Two weeks of a busy model; no two are the same."""
    memory = WEEKS(number % 5)
    return replace(memory, arrivals=replace(memory.arrivals, last_at=EPOCH + number))


def entry(key: Key, at: float) -> Saved:
    """10 KB that look like a memory as far as the shards can tell."""
    rest = random.Random(f"{key}{at}").randbytes(10_000).hex()
    text = f'{{"uid":"{key}","at":{at},"sign":"","memory":"{rest}"}}'
    return Saved(str(key), at, "", zlib.compress(text.encode()))


def crowd(models: int, at: float) -> dict[Key, Saved]:
    return {(key := Key("team", f"m{n}")): entry(key, at) for n in range(models)}


def shards(space: Space) -> list[str]:
    """Names of the ConfigMaps, but for the one that each namespace has."""
    return sorted(o["metadata"]["name"] for o in space.every(CONFIG_MAP) if o["metadata"]["name"] != "kube-root-ca.crt")


async def after_a_restart(client: Kube, namespace: str) -> dict[Key, Saved]:
    """What the next leader finds."""
    return dict(await PlannerMemoryStore(client, namespace, SYSTEM_CLOCK).load())


async def test_memories_of_300_models_survive_a_restart(client: KubeClient, space: Space) -> None:
    first = PlannerMemoryStore(client, space.namespace, SYSTEM_CLOCK)
    assert await first.load() == {}
    for n in range(300):
        first.offer(Key("team", f"m{n}"), f"uid-{n}", learnt(n))
    began = time.monotonic()
    await first.flush(within_s=120)
    took = time.monotonic() - began
    written = await first.load()
    assert len(written) == 300
    count = shard_count({entry_name(key): len(entry.content) for key, entry in written.items()}, 1)
    assert shards(space) == [shard_name(n) for n in range(count)]
    assert (await client.list(CONFIG_MAP, namespace=space.namespace, selector=OURS))[0] == []
    largest = max(sum(map(len, o.get("binaryData", {}).values())) * 3 / 4 for o in space.every(CONFIG_MAP))

    began = time.monotonic()
    second = PlannerMemoryStore(client, space.namespace, SYSTEM_CLOCK)
    loaded = await second.load()
    print(  # noqa: T201  # the figures of the test
        f"300 memories: saved in {took:.1f} s, packing included, loaded in {time.monotonic() - began:.2f} s; "
        f"{sum(len(s.content) for s in loaded.values()) / 300 / 1024:.1f} KiB each, {count} shards, {largest / 1024:.0f} KiB the largest"
    )
    assert loaded == written
    assert len(loaded) == 300
    for n in (0, 1, 299):
        back = loaded[Key("team", f"m{n}")]
        restored = back.restored()
        assert (back.uid, restored.problems) == (f"uid-{n}", ())
        assert packed(restored.memory) == packed(resumed(learnt(n)))

    # What is as it was read brings no write; one that has learnt brings one.
    writes = client.writes
    for n in range(20):
        second.offer(Key("team", f"m{n}"), f"uid-{n}", loaded[Key("team", f"m{n}")].restored().memory)
    await second.flush(within_s=30)
    assert client.writes == writes
    second.offer(Key("team", "m7"), "uid-7", learnt(1007))
    await second.flush(within_s=30)
    assert client.writes == writes + 1
    renewed = await after_a_restart(client, space.namespace)
    assert renewed.keys() == loaded.keys()
    assert [key.name for key in loaded if renewed[key] != loaded[key]] == ["m7"]


async def test_a_leader_killed_while_one_shard_becomes_four_loses_nothing(client: KubeClient, space: Space) -> None:
    small, large = crowd(30, 1.0), crowd(120, 2.0)
    assert await Shards(client, space.namespace).write(small)
    assert shards(space) == [shard_name(0)]
    for writes in range(4):
        mortal = Mortal(client._api)
        mortal.left = writes
        dying = Shards(mortal, space.namespace)
        assert (await dying.read()).keys() >= small.keys()
        with pytest.raises(Killed):
            await dying.write(crowd(120, 2.0 + writes))
        left = await after_a_restart(client, space.namespace)
        assert left.keys() >= small.keys()
        assert len(shards(space)) == 1 + min(writes, 3)
        # Of one that is there twice, the newest counts.
        assert max(entry.at for entry in left.values()) == (2.0 + writes if writes else 1.0)
        assert sum(len(o.get("binaryData", {})) for o in space.every(CONFIG_MAP)) >= len(left)

    third = Shards(client, space.namespace)
    await third.read()
    assert await third.write(large)
    assert shards(space) == [shard_name(n) for n in range(4)]
    assert await after_a_restart(client, space.namespace) == large
    assert sum(len(o.get("binaryData", {})) for o in space.every(CONFIG_MAP)) == len(large)


async def test_two_releases_in_one_namespace_drop_nothing_of_each_other(client: KubeClient, space: Space) -> None:
    names = ("halcyon-memory", "prod-halcyon-memory")
    for n, name in enumerate(names):
        keeping = PlannerMemoryStore(client, space.namespace, SYSTEM_CLOCK, config_maps=name)
        await keeping.load()
        keeping.offer(key := Key(f"team-{n}", "m"), f"uid-{n}", learnt(n))
        assert await keeping._save(lambda key=key: {key})  # type: ignore[misc]
    assert shards(space) == [f"{name}-000" for name in names]
    for n, name in enumerate(names):
        stored = await PlannerMemoryStore(client, space.namespace, SYSTEM_CLOCK, config_maps=name).load()
        assert [(key.namespace, entry.uid) for key, entry in stored.items()] == [(f"team-{n}", f"uid-{n}")]


async def test_entries_of_deleted_models_go_and_the_last_takes_its_shard_along(
    client: KubeClient, space: Space
) -> None:
    keeping = Shards(client, space.namespace)
    assert await keeping.write(crowd(120, 1.0))
    assert len(shards(space)) == 4
    few = crowd(10, 1.0)
    assert await keeping.write(few)
    assert shards(space) == [shard_name(0)]
    assert await after_a_restart(client, space.namespace) == few
    assert set(space.must(CONFIG_MAP, shard_name(0))["binaryData"]) == {f"team.m{n}" for n in range(10)}
    assert await keeping.write({})
    assert shards(space) == []
