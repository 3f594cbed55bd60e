"""What nodes have left of a resource, and who holds it, counted as the scheduler counts."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon.render import names
from halcyon_cli.kube.free_capacity import FreeCapacity, Holder, insufficient_resources, measure

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-1g.10gb"


def node(name: str, amount: object = "8", *, resource: str = GPU, ready: str = "True", cordoned: bool = False) -> Any:
    return {
        "metadata": {"name": name},
        "spec": {"unschedulable": True} if cordoned else {},
        "status": {
            "allocatable": {"cpu": "64", resource: amount},
            "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}],
        },
    }


def limits(count: object, resource: str = GPU) -> Any:
    return {"name": "c", "resources": {"limits": {resource: count, "memory": "4Gi"}}}


def pod(name: str, at: str | None, *containers: Any, phase: str = "Running", **more: Any) -> Any:
    meta = {"namespace": "batch", "name": name, **more.pop("metadata", {})}
    placement = {} if at is None else {"nodeName": at}
    return {"metadata": meta, "spec": {"containers": list(containers), **placement, **more}, "status": {"phase": phase}}


def owned(kind: str, name: str, **labels: str) -> Any:
    owner = {"kind": kind, "name": name, "controller": True}
    return {"labels": labels, "ownerReferences": [{"kind": "Other", "name": "x"}, owner]}


def test_held_resources_are_not_free_and_the_largest_holder_is_first() -> None:
    ours = {"metadata": {"namespace": "team", "labels": names.labels("digits", names.SERVER)}}
    capacity = measure(
        GPU,
        [node("a"), node("b", "4")],
        [
            pod("train", "a", limits("2"), limits("1")),
            *(pod(f"digits-a-{n}", "b", limits("1"), **ours) for n in range(4)),
            pod("web", "a", {"name": "c"}),
        ],
    )

    assert capacity == FreeCapacity(GPU, 12, 5, 5, 2, (Holder("team/digits", 4), Holder("batch/train", 3)))
    assert capacity.describe() == "5 of 12 nvidia.com/gpu free on 2 nodes; team/digits holds 4, batch/train 3"


@pytest.mark.parametrize(
    ("holder", "held"),
    [
        (pod("p", "a", limits("3")), 3),
        (pod("p", "a", {"resources": {"requests": {GPU: 3}}}), 3),
        (pod("p", "a", limits("1"), initContainers=[limits("3"), limits("2")]), 3),
        (pod("p", "a", limits("2"), limits("1"), initContainers=[limits("1")]), 3),
        (pod("p", "a", limits("1"), initContainers=[limits("1") | {"restartPolicy": "Always"}, limits("1")]), 2),
        (pod("p", "a", limits("1"), initContainers=[limits("1") | {"restartPolicy": "Always"}, limits("2")]), 3),
        (pod("p", "a", limits("1"), phase="Pending"), 1),  # it has its node, and pulls
        (pod("p", "a", limits("1"), phase="Succeeded"), 0),
        (pod("p", "a", limits("1"), phase="Failed"), 0),
        (pod("p", None, limits("1"), phase="Pending"), 0),
        (pod("p", "cordoned", limits("1")), 0),
        (pod("p", "a", limits("1", MIG)), 0),
        (pod("p", "a", limits("rubbish")), 0),
        (pod("p", "a", "rubbish"), 0),
        ({}, 0),
    ],
)
def test_a_pod_holds_its_requests_from_its_node_on_to_its_end(holder: Any, held: int) -> None:
    capacity = measure(GPU, [node("a"), node("cordoned", cordoned=True)], [holder])

    assert (capacity.total, capacity.free) == (8, 8 - held)


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({}, "batch/p"),
        ({"metadata": owned("Job", "train-7")}, "batch/train-7"),
        ({"metadata": owned("ReplicaSet", "web-5c9", **{"pod-template-hash": "5c9"})}, "batch/web"),
        ({"metadata": owned("ReplicaSet", "digits-a-5c9", **names.labels("digits", names.SERVER))}, "batch/digits"),
    ],
)
def test_a_holder_has_the_name_that_its_owner_knows_it_by(more: Any, name: str) -> None:
    assert measure(GPU, [node("a")], [pod("p", "a", limits("1"), **more)]).holders == (Holder(name, 1),)


@pytest.mark.parametrize(
    "nodes",
    [
        [node("a", ready="False")], [node("a", ready="Unknown")], [node("a", cordoned=True)],
        [node("a", resource=MIG, cordoned=True)], [node("a", "0")], [node("a", "many")], [{}], [],
    ],
)  # fmt: skip
def test_nodes_that_take_no_pods_have_no_free_capacity(nodes: Any) -> None:
    capacity = measure(GPU, nodes, [pod("p", "a", limits("1"))])

    assert capacity == FreeCapacity(GPU, 0, 0, 0, 0, ())
    assert capacity.describe() == "0 of 0 nvidia.com/gpu free on any node that accepts pods"


def test_a_resource_of_no_node_is_shown_with_those_offered() -> None:
    nodes = [node("a"), node("b"), node("c", resource=MIG), node("d", "0", resource="amd.com/gpu")]

    capacity = measure("nvidia.com/mig-9g.99gb", nodes, [])

    assert capacity.offered == (GPU, MIG)
    assert capacity.describe() == (
        f"no node that accepts pods offers nvidia.com/mig-9g.99gb; nodes offer nvidia.com/gpu, {MIG}"
    )


def test_an_overcommitted_node_takes_no_capacity_from_another() -> None:
    capacity = measure(GPU, [node("a", "1"), node("b", "2")], [pod("p", "a", limits("4"))])

    assert (capacity.total, capacity.free, capacity.max_per_node) == (3, 2, 2)


def test_free_capacity_in_pieces_is_shown_with_the_most_of_one_node() -> None:
    capacity = measure(GPU, [node("a", "2"), node("b", "2"), node("c", "1")], [pod("p", "c", limits("1"))])

    assert capacity.describe() == "4 of 5 nvidia.com/gpu free on 3 nodes, at most 2 on one; batch/p holds 1"


def test_many_holders_are_counted() -> None:
    held = [pod(f"p{n}", "a", limits(str(n))) for n in (4, 3, 2, 1)] + [pod("q", "a", limits("1"))]

    text = measure(GPU, [node("a", "16")], held).describe()
    assert text == "5 of 16 nvidia.com/gpu free on 1 node; batch/p4 holds 4, batch/p3 3, batch/p2 2, 2 others 2"


def test_missing_resources_are_read_from_the_schedulers_message() -> None:
    messages = [
        "0/3 nodes are available: 1 Insufficient memory, 2 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available",
        "3 of 6 servers are ready: pod x: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu, 1 Insufficient nvidia.com/mig-1g.10gb.",
        "5 of 5 servers are ready",
    ]
    assert insufficient_resources(messages) == [GPU, MIG]
