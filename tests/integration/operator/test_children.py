"""From a ModelDeployment to its objects: what is made, what a change makes of it, and what is kept.

Against a real API server and real controllers; nodes and pods are KWOK's stand-ins, so nothing is ever loaded or served.
"""

from e2e.cluster.kubectl import Kubectl
from halcyon.kube import kinds
from tests.integration.operator_space import Space, deployment, files
from tests.integration.waiting import until

SCALING = {"minReplicas": 1, "maxReplicas": 9, "actuator": "HPA"}
FIXED = {
    ("Deployment", "m-a"),
    ("Deployment", "m-balancer"),
    ("Service", "m"),
    ("Service", "m-server-a"),
    ("PodDisruptionBudget", "m-a"),
    ("PodDisruptionBudget", "m-balancer"),
    ("ConfigMap", "m-balancer"),
    ("ServiceAccount", "m-balancer"),
    ("Role", "m-balancer"),
    ("RoleBinding", "m-balancer"),
}


def revision(space: Space) -> str:
    """Name of the record that the servers are made of."""
    current: str = space.status()["revision"]["current"]
    return current


def records(space: Space) -> set[str]:
    return {r["metadata"]["name"] for r in space.every(kinds.CONTROLLER_REVISION)}


def maps(space: Space, part: str) -> set[str]:
    return {n for m in space.every(kinds.CONFIG_MAP) if (n := m["metadata"]["name"]).startswith(f"m-{part}-")}


def test_every_child_is_made_with_an_owner_and_with_labels(space: Space) -> None:
    space.serve(scaling=SCALING)
    uid = space.must(kinds.MODEL_DEPLOYMENT, "m")["metadata"]["uid"]
    children = space.children()

    hashed = {
        key for key in children if key[0] == "ControllerRevision" or key[1].startswith(("m-overlay-", "m-model-"))
    }
    assert {kind for kind, _ in hashed} == {"ControllerRevision", "ConfigMap"}
    assert len(hashed) == 3
    assert children.keys() - hashed == FIXED | {("HorizontalPodAutoscaler", "m")}
    for (kind, name), obj in children.items():
        (owner,) = obj["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("ModelDeployment", uid, True), (kind, name)
        labels = obj["metadata"]["labels"]
        assert labels["serving.halcyon.dev/model-deployment"] == "m"
        part = "scaling" if kind == "HorizontalPodAutoscaler" else "balancer" if "balancer" in name else None
        assert labels["app.kubernetes.io/component"] == (
            part or ("balancer" if (kind, name) == ("Service", "m") else "server")
        )
    (overlay,) = maps(space, "overlay")
    (snapshot,) = maps(space, "model")
    assert space.must(kinds.CONFIG_MAP, overlay)["immutable"]
    assert space.must(kinds.CONFIG_MAP, snapshot)["data"] == files()["data"]


def test_the_status_shows_the_actual_state(space: Space) -> None:
    space.serve(replicas=2)
    status = space.status()
    conditions = {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}
    assert conditions == {
        "Ready": ("True", "Ready"),
        "Accepted": ("True", "Accepted"),
        "ModelLoaded": ("True", "Loaded"),
        "ServersReady": ("True", "ServersReady"),
        "BalancerReady": ("True", "BalancerReady"),
        "ScalingActive": ("True", "FixedReplicas"),
    }
    assert status["pods"].items() >= {"total": 2, "ready": 2, "updated": 2, "unschedulable": 0}.items()
    assert status["address"]["url"] == f"http://m.{space.namespace}.svc:8000"


def test_kubectl_get_mdep_shows_the_state_at_a_glance(space: Space, kubectl: Kubectl) -> None:
    space.serve(replicas=2)
    head, row = kubectl("get", "mdep").splitlines()
    columns = dict(zip(head.split(), row.split(), strict=False))
    assert columns["NAME"] == "m"
    assert (columns["STATUS"], columns["READY"], columns["DESIRED"]) == ("Ready", "2/2", "2")


def test_kubectl_scale_sets_the_replicas_and_twenty_applies_keep_them(space: Space, kubectl: Kubectl) -> None:
    space.serve(scaling=SCALING)
    kubectl("scale", "mdep/m", "--replicas=7")
    until(space.replicas, lambda n: n == 7, goal="the Deployment has 7")
    for _ in range(20):
        kubectl.apply(deployment(scaling=SCALING), arguments=("--server-side", "--force-conflicts"))
        assert space.must(kinds.MODEL_DEPLOYMENT, "m")["spec"]["replicas"] == 7
        assert space.replicas() == 7
    space.wait_settled()
    assert space.replicas() == 7


def test_client_side_applies_keep_the_replicas_as_well(space: Space, kubectl: Kubectl) -> None:
    kubectl.apply(files(), deployment(), arguments=())
    space.wait_settled()
    kubectl("scale", "mdep/m", "--replicas=3")
    until(space.replicas, lambda n: n == 3, goal="the Deployment has 3")
    for _ in range(3):
        kubectl.apply(files(), deployment(), arguments=())
    assert space.must(kinds.MODEL_DEPLOYMENT, "m")["spec"]["replicas"] == 3


def test_a_change_of_the_replicas_alone_causes_no_revision_and_no_reconciling(space: Space) -> None:
    space.serve()
    before = records(space)
    seen: set[str] = set()

    def look() -> int:
        status = space.status()
        seen.update(f"{c['type']}={c['status']}" for c in status["conditions"])
        ready: int = status["readyReplicas"]
        return ready

    space.scale(4)
    until(look, lambda ready: ready == 4, goal="4 are ready", every_s=0.01)
    assert {s for s in seen if s.startswith(("Reconciling", "Stalled", "Ready"))} == {"Ready=True"}
    assert records(space) == before


def test_a_change_of_the_models_config_map_makes_a_revision_and_rolls(space: Space) -> None:
    space.serve(replicas=2)
    first = revision(space)
    pods = {p["metadata"]["name"] for p in space.every(kinds.POD)}
    space.apply(files("max_batch_size: 16"))
    until(lambda: space.settled() and revision(space) != first, bool, goal="the new content is served", limit_s=20)
    assert len(records(space)) == 2
    assert len(maps(space, "model")) == 2
    servers = {p["metadata"]["name"] for p in space.every(kinds.POD) if p["metadata"]["name"].startswith("m-a-")}
    until(
        lambda: {n for p in space.every(kinds.POD) if (n := p["metadata"]["name"]).startswith("m-a-")} & pods,
        lambda old: not old,
        goal="the pods of the old content are gone",
    )
    assert servers


def test_a_change_of_the_spec_and_back_uses_its_record_again(space: Space) -> None:
    space.serve(batching={"maxBatchSize": 8})
    first = revision(space)
    space.apply(deployment(batching={"maxBatchSize": 16}))
    until(lambda: space.settled() and revision(space) != first, bool, goal="the change is served", limit_s=20)
    both = records(space)
    space.apply(deployment(batching={"maxBatchSize": 8}))
    until(lambda: space.settled() and revision(space) == first, bool, goal="the first is served again", limit_s=20)
    assert records(space) == both
    numbers = {r["metadata"]["name"]: r["revision"] for r in space.every(kinds.CONTROLLER_REVISION)}
    assert numbers[first] == 3


def test_ten_records_of_twelve_changes_stay_with_their_config_maps(space: Space) -> None:
    space.serve(batching={"maxBatchSize": 1})
    names = [revision(space)]
    for size in range(2, 14):
        space.apply(deployment(batching={"maxBatchSize": size}))
        target = until(
            lambda: space.status().get("revision", {}).get("target"),
            lambda t: t is not None and t not in names,
            goal=f"size {size} is planned",
        )
        names.append(str(target))
    space.wait_settled(limit_s=30)
    until(lambda: records(space), lambda kept: kept == set(names[-10:]), goal="the last ten records are kept")
    kept = {r["data"]["overlay"] for r in space.every(kinds.CONTROLLER_REVISION)}
    assert len(kept) == 10
    until(lambda: maps(space, "overlay"), lambda m: len(m) == 10, goal="the overlays of the ten records are kept")
    assert {space.must(kinds.CONFIG_MAP, m)["data"]["overlay.json"] for m in maps(space, "overlay")} == kept
    assert len(maps(space, "model")) == 1


def test_objects_that_pods_use_are_not_pruned(space: Space) -> None:
    # The second revision can't start: its pods ask for more GPUs than the node has. The first one's stay.
    space.serve()
    first = revision(space)
    used = next(iter(maps(space, "overlay")))
    stuck = {"gpu": {"count": 16}}
    for size in range(1, 13):
        space.apply(deployment(runtime=stuck, batching={"maxBatchSize": size}))
        until(lambda: len(records(space)), lambda n, size=size: n >= min(size + 1, 11), goal=f"size {size} is planned")  # type: ignore[misc]  # a default
    until(lambda: len(records(space)), lambda n: n <= 11, goal="old records are pruned")
    assert first in records(space)
    assert used in maps(space, "overlay")
    assert space.condition("Ready")[0] == "True"


def test_the_service_follows_the_spec_and_goes_back(space: Space) -> None:
    key = "external-dns.alpha.kubernetes.io/hostname"
    spec = {"type": "LoadBalancer", "annotations": {key: "m.example"}, "sourceRanges": ["10.1.2.3/8"]}
    space.serve(traffic={"service": spec})
    service = space.must(kinds.SERVICE, "m")
    assert (service["spec"]["type"], service["spec"]["loadBalancerSourceRanges"]) == ("LoadBalancer", ["10.0.0.0/8"])
    assert service["metadata"]["annotations"][key] == "m.example"

    space.apply(deployment(traffic={"service": {**spec, "annotations": {"example.com/x": "1"}}}))
    refused = until(
        lambda: next((c for c in space.status()["conditions"] if c["type"] == "Accepted"), {}),
        lambda c: c.get("status") == "False",
        goal="the annotation is refused",
    )
    assert "spec.traffic.service.annotations has example.com/x" in refused["message"]
    assert space.must(kinds.SERVICE, "m")["metadata"]["annotations"][key] == "m.example"

    space.apply(deployment())
    back = until(
        lambda: space.must(kinds.SERVICE, "m"), lambda s: s["spec"]["type"] == "ClusterIP", goal="the type is back"
    )
    assert key not in back["metadata"]["annotations"]
    assert "loadBalancerSourceRanges" not in back["spec"]
    assert not any("nodePort" in port for port in back["spec"]["ports"])


def test_pods_whose_requests_equal_their_limits_are_guaranteed(space: Space) -> None:
    space.serve(runtime={"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}})
    pods = [p for p in space.every(kinds.POD) if p["metadata"]["name"].startswith("m-a-")]

    assert [pod["status"]["qosClass"] for pod in pods] == ["Guaranteed"]
