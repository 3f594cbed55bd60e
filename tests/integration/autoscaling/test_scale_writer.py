"""How a count is written on a real API server: where it is still the one that was seen, whatever else has changed."""

import pytest

from e2e.cluster.cluster import Cluster
from halcyon.kube import errors, kinds
from halcyon.kube.client import connect
from tests.integration.operator_space import Space, deployment


async def test_replicas_are_written_only_if_they_are_those_that_were_seen(cluster: Cluster, space: Space) -> None:
    space.apply(deployment())
    space.scale(1)
    seen = space.must(kinds.MODEL_DEPLOYMENT, "m")
    client = await connect(str(cluster.kubeconfig))

    async def write(before: int, after: int, uid: str = seen["metadata"]["uid"]) -> int:
        obj = {**seen, "metadata": {**seen["metadata"], "uid": uid}}
        scaled = await client.scale(kinds.MODEL_DEPLOYMENT, obj, before=before, after=after)
        assert int(scaled["metadata"]["resourceVersion"]) > int(seen["metadata"]["resourceVersion"])
        return int(scaled["spec"].get("replicas", 0))

    try:
        # Each write makes the object another than the one that was seen, and so do the operator's into its status.
        assert [await write(1, 3), await write(3, 0), await write(0, 2)] == [3, 0, 2]
        for before, uid in ((3, seen["metadata"]["uid"]), (0, seen["metadata"]["uid"]), (2, "another")):
            with pytest.raises(errors.Conflicted):
                await write(before, 5, uid)
        space.delete(kinds.MODEL_DEPLOYMENT, "m")
        with pytest.raises((errors.NotFound, errors.Conflicted)):
            await write(2, 5)
    finally:
        await client.close()


async def test_replicas_are_written_only_to_the_version_that_was_seen(cluster: Cluster, space: Space) -> None:
    space.serve(replicas=2)
    seen = space.must(kinds.MODEL_DEPLOYMENT, "m")
    client = await connect(str(cluster.kubeconfig))

    async def write(version: str) -> int:
        scaled = await client.scale(kinds.MODEL_DEPLOYMENT, seen, before=2, after=5, version=version)
        return int(scaled["spec"]["replicas"])

    try:
        space.merge(kinds.MODEL_DEPLOYMENT, "m", {"metadata": {"annotations": {"team": "vision"}}})
        # The operator's own writes must have ended.
        space.wait_settled()
        with pytest.raises(errors.Conflicted):
            await write(seen["metadata"]["resourceVersion"])
        assert await write(space.must(kinds.MODEL_DEPLOYMENT, "m")["metadata"]["resourceVersion"]) == 5
    finally:
        await client.close()
