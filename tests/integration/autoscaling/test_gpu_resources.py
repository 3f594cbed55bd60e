"""GPUs by name and by dynamic resource allocation, on a real API server, scheduler and claim controller.

The driver is a stand-in: the tests publish its DeviceClass and ResourceSlice. No kubelet plugin runs, and pods are KWOK's, so devices
are allocated and never prepared. The slice of a GPU is a number in the node's status.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from e2e.cluster.cluster import Cluster
from e2e.cluster.kwok import NODE
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Kind
from tests.integration.operator_space import MERGE, Space, deployment, files
from tests.integration.versions import has_resource_claims
from tests.integration.waiting import until

API = "resource.k8s.io/v1"
CLAIM = Kind(API, "ResourceClaim", "resourceclaims")
TEMPLATE = Kind(API, "ResourceClaimTemplate", "resourceclaimtemplates")
CLASS = Kind(API, "DeviceClass", "deviceclasses", namespaced=False)
SLICE = Kind(API, "ResourceSlice", "resourceslices", namespaced=False)
DRIVER = "gpu.stand-in.example"
DEVICES = ("gpu-0", "gpu-1")


@dataclass(frozen=True)
class Driver:
    """What a driver would publish: two devices of the node, and their class."""

    space: Space

    @property
    def name(self) -> str:
        return f"{self.space.namespace}.{DRIVER}"

    def publish(self) -> None:
        of_driver = {"cel": {"expression": f'device.driver == "{self.name}"'}}
        pool = {"name": NODE, "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": name} for name in DEVICES]
        for kind, spec in (
            (CLASS, {"selectors": [of_driver]}),
            (SLICE, {"driver": self.name, "nodeName": NODE, "pool": pool, "devices": devices}),
        ):
            document = {"apiVersion": API, "kind": kind.kind, "metadata": {"name": self.name}, "spec": spec}
            self.space.api.create(kind.path(), document)

    def template(self, name: str, count: int = 1) -> None:
        request = {"name": "gpu", "exactly": {"deviceClassName": self.name, "count": count}}
        template = {
            "apiVersion": API,
            "kind": TEMPLATE.kind,
            "metadata": {"name": name},
            "spec": {"spec": {"devices": {"requests": [request]}}},
        }
        self.space.api.create(TEMPLATE.path(self.space.namespace), template)

    def allocated(self) -> list[str]:
        """Devices of the claims of the space's pods."""
        allocations = [claim.get("status", {}).get("allocation") or {} for claim in self.space.every(CLAIM)]
        return sorted(
            result["device"]
            for allocation in allocations
            for result in allocation.get("devices", {}).get("results", ())
        )

    def end(self) -> None:
        for kind in (SLICE, CLASS):
            self.space.api.call("DELETE", kind.path("", self.name))


@pytest.fixture
def driver(cluster: Cluster, space: Space) -> Iterator[Driver]:
    if not has_resource_claims(cluster):
        pytest.skip("this API server has no resource.k8s.io/v1")
    driver = Driver(space)
    driver.publish()
    yield driver
    driver.end()


def claiming(name: str = "one-gpu", *, count: int = 1, replicas: int = 1) -> Object:
    runtime = {"gpu": {"count": count, "resourceClaimTemplateName": name}}
    return deployment(replicas=replicas, runtime=runtime)


@pytest.fixture
def slices(cluster: Cluster) -> Iterator[str]:
    """A resource of which the node has one."""
    name = "nvidia.com/mig-1g.10gb"
    of_node = f"/api/v1/nodes/{NODE}/status"

    def offer(amount: str | None) -> None:
        amounts = {"capacity": {name: amount}, "allocatable": {name: amount}}
        assert cluster.api.call("PATCH", of_node, {"status": amounts}, content_type=MERGE).status == 200

    offer("1")
    yield name
    offer(None)


def test_slices_are_counted_by_the_name_of_their_resource(space: Space, slices: str) -> None:
    space.serve(runtime={"gpu": {"resourceName": slices}})
    pod = space.must(kinds.DEPLOYMENT, "m-a")["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"] == {"limits": {slices: "1"}}

    space.scale(2)
    until(lambda: space.condition("ServersReady")[2], lambda text: f"Insufficient {slices}" in text, goal="the reason")
    quota = {"metadata": {"name": "slices"}, "spec": {"hard": {f"requests.{slices}": "1"}}}
    space.api.create(f"/api/v1/namespaces/{space.namespace}/resourcequotas", quota)
    space.apply(deployment("n", runtime={"gpu": {"resourceName": slices}}))
    until(
        lambda: space.condition("ServersReady", "n")[1:],
        lambda condition: (
            condition[0] == "PodCreationFailed"
            and f"exceeded quota: slices, requested: requests.{slices}=1" in condition[1]
        ),
        goal="the quota on slices rejects the pod",
    )


def test_claimed_devices_are_allocated_and_one_pod_too_many_is_unschedulable(driver: Driver) -> None:
    space = driver.space
    driver.template("one-gpu")
    space.apply(files(), claiming(replicas=2))
    space.wait_settled()
    assert driver.allocated() == list(DEVICES)
    pod = space.must(kinds.DEPLOYMENT, "m-a")["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"] == {"claims": [{"name": "gpu"}]}
    until(lambda: (space.status().get("cost") or {}).get("gpus"), lambda held: held == 2, goal="both GPUs have a cost")

    space.scale(3)
    unready = space.wait_condition("ServersReady", "False", "PartiallyReady")
    assert "2 of 3 servers are ready" in unready
    message = until(
        lambda: space.condition("ServersReady")[2], lambda text: "cannot allocate all claims" in text, goal="the reason"
    )
    assert "0/1 nodes are available" in message
    assert space.status()["pods"]["unschedulable"] == 1

    space.scale(1)
    space.wait_settled()
    until(driver.allocated, lambda devices: len(devices) == 1, goal="the devices of deleted pods are free again")


def test_a_missing_claim_template_is_named_until_it_exists(driver: Driver) -> None:
    space = driver.space
    space.apply(files(), claiming("two-gpus", count=2))
    message = space.wait_condition("ServersReady", "False", "Unschedulable")
    assert "its ResourceClaim of ResourceClaimTemplate two-gpus is not created yet; if that lasts, check" in message
    (pod,) = (p for p in space.every(kinds.POD) if p["metadata"]["name"].startswith("m-a-"))
    assert not pod["status"].get("conditions"), "the scheduler reports nothing, so the operator has to"

    driver.template("two-gpus", count=2)
    # The claim's controller retries ever less often: a new pod is tried at once.
    space.delete(kinds.POD, pod["metadata"]["name"])
    space.wait_settled()
    assert driver.allocated() == list(DEVICES)


@pytest.mark.usefixtures("operator")
def test_an_api_server_without_claims_is_a_condition(cluster: Cluster, space: Space) -> None:
    if has_resource_claims(cluster):
        pytest.skip("this API server has claims; make test-compat runs an older one")
    space.apply(files(), claiming())
    message = space.wait_condition("Accepted", "False", "Invalid")
    assert "does not support resource claims (they need Kubernetes 1.34 or newer" in message
