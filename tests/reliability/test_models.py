"""R-10, R-11 and R-25: models that are deleted at every stage, recreated at once, and changed very often, on a real API server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from tests.faults.forks import ForkedOperator
from tests.faults.site import Site
from tests.integration.operator_space import REPLICA_SET, Object, Space, deployment, files
from tests.integration.proxy import Door
from tests.integration.waiting import until
from tests.reliability.trials import Trial, run

ENDPOINT_SLICE = Kind("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")
DELETIONS, RECREATIONS, STORMS = 200, 100, 10
LANES = 6
WRITES = {"create": 20, "change": 9}
"""Number of writes of each stage; a deletion comes after each of them."""
DOWN = 8
"""A deletion of eight happens while no operator runs."""
SPEC: Object = {"traffic": {"balancerReplicas": 1}, "scaling": {"maxReplicas": 4, "actuator": "HPA"}}
CHANGED: Object = {**SPEC, "batching": {"maxBatchSize": 16}}
CHANGES, STORM_S, MAX_ROLLOUTS = 200, 10.0, 5


@contextmanager
def watched(installation: Site) -> Iterator[tuple[ForkedOperator, Door]]:
    """Run an operator for all namespaces, whose log must have no error."""
    operator, door = installation.start()
    operator.wait_leading()
    try:
        yield operator, door
        assert not operator.complaints(), operator.complaints()
    finally:
        operator.stop()


def remains(space: Space) -> list[str]:
    """Return everything that still exists of the models of a namespace."""
    models = [f"ModelDeployment {obj['metadata']['name']}" for obj in space.every(kinds.MODEL_DEPLOYMENT)]
    children = [f"{kind} {name}" for kind, name in space.children()]
    # Owners first: a pod may be created until its ReplicaSet is gone.
    below = [
        f"{k.kind} {o['metadata']['name']}" for k in (REPLICA_SET, ENDPOINT_SLICE, kinds.POD) for o in space.every(k)
    ]
    return [entry for entry in (*models, *children, *below) if " m-other" not in entry]


def wait_gone(space: Space) -> list[str]:
    """Wait until nothing remains of a namespace's models, and return the problems."""
    try:
        # An object whose creation was under way during the deletion may appear afterwards, until the garbage collector has seen it.
        for _ in range(3):
            until(lambda: remains(space), lambda left: not left, goal="everything is deleted", limit_s=30, every_s=0.3)
            time.sleep(0.5)
    except AssertionError as error:
        return [str(error)[:800]]
    return []


def wait_written(door: Door, since: int, space: Space, count: int) -> None:
    """Wait until the operator has sent this number of writes of a namespace, or the model is served."""

    def written() -> int:
        return sum(r.write is not None and r.namespace == space.namespace for r in door.seen[since:])

    until(lambda: written() >= count or space.settled(), bool, goal=f"{count} writes", limit_s=30, every_s=0.01)


def test_deletions_at_every_stage_leave_nothing(installation: Site) -> None:
    spaces = installation.spaces_for(LANES)
    for space in spaces:
        space.apply(files())
    with watched(installation) as (_, door):

        def lane(space: Space) -> Callable[[int], Trial]:
            def trial(number: int) -> Trial:
                stage = "create" if number % 3 else "change"
                count = number % (WRITES[stage] + 1)
                began = len(door.seen)
                space.apply(deployment(**SPEC))
                if stage == "change":
                    space.wait_settled(limit_s=40)
                    began = len(door.seen)
                    space.apply(deployment(**CHANGED))
                wait_written(door, began, space, count)
                space.delete(kinds.MODEL_DEPLOYMENT, "m")
                deleted = time.monotonic()
                problems = wait_gone(space)
                return Trial(problems, {"seconds": round(time.monotonic() - deleted - 1.5, 1)}, f"{stage}-{count}")

            return trial

        problems = run("R-10", DELETIONS - DELETIONS // DOWN, [lane(space) for space in spaces], share=0.22)
    assert problems == {}


def test_models_deleted_while_no_operator_runs_leave_nothing(installation: Site) -> None:
    count = DELETIONS // DOWN
    [space] = installation.spaces_for(1)
    space.apply(files())
    names = [f"m{number}" for number in range(count)]

    def trial(_: int) -> Trial:
        with watched(installation):
            for name in names:
                space.apply(deployment(name, **SPEC))
            for name in names:
                space.wait_settled(name, limit_s=60)
        for name in names:
            space.delete(kinds.MODEL_DEPLOYMENT, name)
        problems = wait_gone(space)
        with watched(installation):
            problems += wait_gone(space)
        return Trial(problems, {"deletions": count}, "no operator runs")

    assert run("R-10-down", 1, [trial], share=0.05) == {}


def test_recreated_models_have_only_objects_of_their_own(installation: Site) -> None:
    spaces = installation.spaces_for(LANES)
    with watched(installation) as (_, door):
        for space in spaces:
            space.apply(files(), deployment(**SPEC))

        def lane(space: Space) -> Callable[[int], Trial]:
            def trial(number: int) -> Trial:
                # Every other model is still being created when it is deleted.
                if number % 2:
                    space.wait_settled(limit_s=40)
                else:
                    space.delete(kinds.MODEL_DEPLOYMENT, "m")
                    space.apply(deployment(**SPEC))
                    wait_written(door, len(door.seen), space, number % WRITES["create"])
                old = space.must(kinds.MODEL_DEPLOYMENT, "m")["metadata"]["uid"]
                began = time.monotonic()
                space.delete(kinds.MODEL_DEPLOYMENT, "m")
                space.apply(deployment(**(CHANGED if number % 4 < 2 else SPEC)))
                between = time.monotonic() - began
                space.wait_settled(limit_s=40)
                return Trial(of_others(space, old), {"delete_to_create_s": round(between, 3)}, "recreated")

            return trial

        problems = run("R-11", RECREATIONS, [lane(space) for space in spaces], share=0.15)
    assert problems == {}


def of_others(space: Space, old: str) -> list[str]:
    """Wait until no object is left of the model before, and return the problems: objects that don't belong to the present one."""
    new = space.must(kinds.MODEL_DEPLOYMENT, "m")["metadata"]["uid"]

    def strange() -> list[str]:
        children = space.children()
        deployments = {o["metadata"]["uid"] for (kind, _), o in children.items() if kind == "Deployment"}
        sets = [o for o in space.every(REPLICA_SET) if owner(o) in deployments]
        of_sets = {o["metadata"]["uid"] for o in sets}
        odd = [f"{kind} {name} of {owner(o)}" for (kind, name), o in children.items() if owner(o) != new]
        odd += [f"ReplicaSet {o['metadata']['name']}" for o in space.every(REPLICA_SET) if owner(o) not in deployments]
        odd += [f"Pod {o['metadata']['name']}" for o in space.every(kinds.POD) if owner(o) not in of_sets]
        # 13 objects and the HorizontalPodAutoscaler.
        return odd + ([] if len(children) == 14 else [f"{len(children)} children"])

    try:
        assert new != old, "the model has its old uid"
        until(strange, lambda odd: not odd, goal="all objects are the new model's", limit_s=30, every_s=0.3)
    except AssertionError as error:
        return [str(error)[:800]]
    return []


def owner(obj: Object) -> str:
    """Return the uid of an object's controller; empty if it has none."""
    return str(next((o["uid"] for o in obj["metadata"].get("ownerReferences") or () if o.get("controller")), ""))


def test_storms_of_changes_cause_few_rollouts(installation: Site) -> None:
    [space] = installation.spaces_for(1)
    space.apply(files())
    with watched(installation):

        def trial(number: int) -> Trial:
            name = f"s{number}"
            space.apply(deployment(name, **SPEC))
            space.wait_settled(name, limit_s=40)
            before = revisions(space, name)
            began = time.monotonic()
            for change in range(1, CHANGES + 1):
                space.merge(kinds.MODEL_DEPLOYMENT, name, {"spec": {"batching": {"maxBatchSize": 8 + change}}})
                time.sleep(max(began + change * STORM_S / CHANGES - time.monotonic(), 0))
            seconds = time.monotonic() - began
            space.wait_settled(name, limit_s=60)
            rollouts = len(revisions(space, name) - before)
            problems = []
            if rollouts > MAX_ROLLOUTS:
                problems.append(f"{rollouts} ReplicaSets were created")
            if str(8 + CHANGES) not in json_of(space, name):
                problems.append("the pods aren't those of the last spec")
            space.delete(kinds.MODEL_DEPLOYMENT, name)
            return Trial(problems, {"rollouts": rollouts, "seconds_of_changes": round(seconds, 1)}, "batching")

        problems = run("R-25", STORMS, [trial], share=0.1)
    assert problems == {}


def revisions(space: Space, name: str) -> set[str]:
    """Return the pod template hashes of the ReplicaSets that a model's Deployment of servers has had."""
    deployments = {f"{name}-{slot}" for slot in ("a", "b")}
    return {
        obj["metadata"]["uid"]
        for obj in space.every(REPLICA_SET)
        if obj["metadata"]["ownerReferences"][0]["name"] in deployments
    }


def json_of(space: Space, name: str) -> str:
    """Return the texts of the ConfigMap that a model's pods have."""
    volumes = space.must(kinds.DEPLOYMENT, f"{name}-a")["spec"]["template"]["spec"]["volumes"]
    texts = []
    for volume in volumes:
        projected = [s["configMap"] for s in (volume.get("projected") or {}).get("sources", ()) if "configMap" in s]
        for source in ([volume["configMap"]] if "configMap" in volume else []) + projected:
            obj = space.get(kinds.CONFIG_MAP, source["name"]) or {}
            texts += list((obj.get("data") or {}).values())
    return "\n".join(texts)
