"""Rollouts against a real API server, Deployment controller and scheduler: what gives way to what, and what comes back.

Pods are KWOK's: they load nothing. One that can't be loaded is a pod that stays Pending, with the fetcher's verdict written into
its status by the test. What Triton itself says, and requests that must not fail, are the scenarios'.
"""

import contextlib
import copy
import io
import json
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from e2e.cluster.kubectl import Kubectl
from e2e.cluster.kwok import HOLD
from halcyon.kube import kinds
from halcyon.main import main
from tests.integration.operator_process import Operator
from tests.integration.operator_space import MERGE, Object, Space, deployment
from tests.integration.pods_followed import pods_followed
from tests.integration.waiting import always, until

pytestmark = pytest.mark.more

REVISION = "serving.halcyon.dev/revision"
NOTE = "serving.halcyon.dev/rollout"
POOL = "halcyon.dev/pool"
_NODES = "/api/v1/nodes"


class Pool:
    """A node of a test's own, with so many GPUs, and ModelDeployments on it."""

    def __init__(self, space: Space, gpus: int) -> None:
        self.space, self.name = space, f"gpus-{space.namespace}"
        room = {"cpu": "64", "memory": "512Gi", "pods": "100", "nvidia.com/gpu": str(gpus)}
        labels = {POOL: space.namespace, HOLD: "", "type": "kwok"}
        labels |= {"kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux"}
        node = {"metadata": {"name": self.name, "labels": labels}, "status": {"capacity": room, "allocatable": room}}
        space.api.create(_NODES, {"apiVersion": "v1", "kind": "Node", **node})

    def resize(self, gpus: int) -> None:
        room = {"nvidia.com/gpu": str(gpus)}
        body = {"status": {"capacity": room, "allocatable": room}}
        assert self.space.api.call("PATCH", f"{_NODES}/{self.name}/status", body, content_type=MERGE).status == 200

    def model(self, size: int, *, replicas: int = 2, gpus: int = 1, held: bool = False, **rollout: Any) -> Object:
        """A ModelDeployment on this node; another `size` is another revision, and a held one never gets ready."""
        selector = {POOL: self.space.namespace, **({HOLD: ""} if held else {})}
        runtime = {"gpu": {"count": gpus}, "placement": {"nodeSelector": selector}, "startupTimeout": "10s"}
        spec: dict[str, Any] = {
            "runtime": runtime,
            "batching": {"maxBatchSize": size},
            "traffic": {"drainTimeout": "1s"},
            "rollout": rollout,
        }
        return deployment(replicas=replicas, **spec)


@pytest.fixture
def pool(space: Space) -> Iterator[Pool]:
    nodes = Pool(space, 2)
    yield nodes
    space.api.call("DELETE", f"{_NODES}/{nodes.name}")


def servers(space: Space) -> list[Object]:
    pods = [p for p in space.every(kinds.POD) if p["metadata"]["name"].startswith("m-a-")]
    return [p for p in pods if not p["metadata"].get("deletionTimestamp")]


def ready_of(pods: Iterable[Object], prefixes: tuple[str, ...] = ("m-a-",)) -> int:
    """Ready ones that stay, with names that begin so."""
    staying = [
        p for p in pods if p["metadata"]["name"].startswith(prefixes) and not p["metadata"].get("deletionTimestamp")
    ]
    conditions = [{c["type"]: c["status"] for c in p["status"].get("conditions") or ()} for p in staying]
    return sum(c.get("Ready") == "True" for c in conditions)


def ready(space: Space) -> int:
    return ready_of(space.every(kinds.POD))


def applied(space: Space) -> str:
    """Name of the revision that the servers' Deployment is of."""
    template = space.must(kinds.DEPLOYMENT, "m-a")["spec"]["template"]
    return f"m-{template['metadata']['labels'][REVISION]}"


def rollout(space: Space) -> Object:
    progress: Object = space.status().get("rollout") or {}
    return progress


def start(space: Space, model: Object) -> str:
    """Have the first revision served; its name."""
    space.serve(**model["spec"])
    return applied(space)


def change(space: Space, model: Object) -> str:
    """Ask for another revision; its name, once the controller has planned it."""
    before = space.status()["revision"]["target"]
    space.apply(model)
    look = lambda: space.status()["revision"]["target"]  # noqa: E731  # said twice
    return str(until(look, lambda t: t != before, goal="the change is planned"))


def refuse(space: Space, revision: str, text: str) -> None:
    """Have the fetcher of a held pod say that the model's configuration is broken."""
    look = lambda: [p for p in servers(space) if f"m-{p['metadata']['labels'][REVISION]}" == revision]  # noqa: E731
    for pod in until(look, bool, goal=f"a pod of {revision}"):
        ended = {
            "exitCode": 1,
            "reason": "Error",
            "message": json.dumps({"reason": "ModelConfigInvalid", "message": text}),
        }
        status = {"name": "fetch", "image": "x", "imageID": "", "ready": False, "restartCount": 1}
        body = {"status": {"initContainerStatuses": [{**status, "state": {"terminated": ended}}]}}
        space.merge(kinds.POD, pod["metadata"]["name"], body, subresource="status")


@contextmanager
def fewest(space: Space, prefixes: tuple[str, ...] = ("m-a-",)) -> Iterator[list[int]]:
    """The numbers of ready servers that there were meanwhile, by a watch: no moment is too short for it."""
    with pods_followed(space) as follow:
        seen: list[int] = [ready_of(follow.pods.values(), prefixes)]
        follow.listeners.append(lambda: seen.append(ready_of(follow.pods.values(), prefixes)))
        yield seen
        until(
            lambda: {pod["metadata"]["uid"]: pod["metadata"]["resourceVersion"] for pod in space.every(kinds.POD)},
            lambda now: now == {uid: pod["metadata"]["resourceVersion"] for uid, pod in dict(follow.pods).items()},
            goal="all that happened was seen",
        )


def event_notes(space: Space, reason: str) -> list[str]:
    return [e["note"] for e in space.events() if e["reason"] == reason]


def wait_single_event(space: Space, reason: str) -> None:
    """Events are written beside the status that they tell of, so one may be there a moment after it."""
    until(lambda: event_notes(space, reason), bool, goal=f"an event tells of {reason}")
    assert len(event_notes(space, reason)) == 1


def test_auto_replaces_without_capacity_to_surge_and_reports_it(space: Space, pool: Pool) -> None:
    start(space, pool.model(1, surgeTimeout="2s"))
    assert rollout(space)["strategy"] == "Surge"
    with fewest(space) as seen:
        second = change(space, pool.model(2, surgeTimeout="2s"))
        # The status says it for as long as it lasts; the event stays.
        wait_single_event(space, "ReplacingPods")
        (note,) = event_notes(space, "ReplacingPods")
        assert "no capacity for an additional pod was available for 2s: pod m-a-" in note
        assert "needs 1 more nvidia.com/gpu" in note
        space.wait_settled(limit_s=30)
    assert min(seen) == 1
    assert applied(space) == second
    assert rollout(space)["history"][0] == {**rollout(space)["history"][0], "revision": second, "result": "Served"}
    assert len(event_notes(space, "ReplacingPods")) == 1
    assert rollout(space)["strategy"] == "Surge"


def test_a_quota_is_capacity_too(space: Space, pool: Pool) -> None:
    pool.resize(8)
    quota = {"metadata": {"name": "gpus"}, "spec": {"hard": {"requests.nvidia.com/gpu": "2"}}}
    space.api.create(f"/api/v1/namespaces/{space.namespace}/resourcequotas", quota)
    start(space, pool.model(1, surgeTimeout="2s"))
    with fewest(space) as seen:
        second = change(space, pool.model(2, surgeTimeout="2s"))
        wait_single_event(space, "ReplacingPods")
        assert "exceeded quota" in event_notes(space, "ReplacingPods")[0]
        space.wait_settled(limit_s=30)
    assert min(seen) == 1
    assert applied(space) == second


def test_surge_never_goes_below_the_replicas_reports_blocking_and_resumes(space: Space, pool: Pool) -> None:
    start(space, pool.model(1))
    with fewest(space) as seen:
        second = change(space, pool.model(2, strategy="Surge", surgeTimeout="1s"))
        message = space.wait_condition("Reconciling", "True", "RolloutBlocked")
        assert "needs 1 more nvidia.com/gpu" in message
        assert "strategy: Replace" in message
        assert space.condition("Ready")[0] == "True"
        wait_single_event(space, "RolloutBlocked")
        pool.resize(3)
        space.wait_settled(limit_s=30)
    assert min(seen) == 2
    assert applied(space) == second


def test_a_rollout_blocked_past_the_deadline_has_all_of_it_once_unblocked(space: Space, pool: Pool) -> None:
    start(space, pool.model(1))
    second = change(space, pool.model(2, strategy="Surge", surgeTimeout="1s", held=True))
    space.wait_condition("Stalled", "True", "RolloutBlocked", limit_s=100)
    pool.resize(3)
    until(lambda: space.condition("Stalled")[0], lambda s: s != "True", goal="it goes on")
    # Its pod starts now, which it hadn't before; and is given the time for it.
    always(
        lambda: (applied(space), space.condition("Stalled")),
        lambda state: state[0] == second and state[1][0] != "True",
        goal="the pod has its time to start",
        for_s=15,
    )
    assert event_notes(space, "RolledBack") == []


def test_replicas_are_followed_while_a_rollout_is_blocked(space: Space, pool: Pool) -> None:
    start(space, pool.model(1))
    second = change(space, pool.model(2, strategy="Surge", surgeTimeout="1s"))
    space.wait_condition("Reconciling", "True", "RolloutBlocked")
    space.scale(1)
    space.wait_settled(limit_s=30)
    assert applied(space) == second
    assert len(servers(space)) == 1


def test_more_pods_than_capacity_do_not_stop_replace(space: Space, pool: Pool) -> None:
    start(space, pool.model(1))
    space.scale(3)
    until(lambda: space.status()["pods"]["unschedulable"], lambda n: n == 1, goal="the third finds no room")
    grace_s, wait_s = servers(space)[0]["spec"]["terminationGracePeriodSeconds"], 1
    began = time.monotonic()
    until(lambda: time.monotonic() - began, lambda s: s > grace_s + wait_s + 1, goal="it is for good", limit_s=60)
    with fewest(space) as seen:
        change(space, pool.model(2, replicas=3, strategy="Replace", surgeTimeout=f"{wait_s}s"))
        until(lambda: space.status()["pods"], lambda r: r["updated"] == 3 and r["ready"] == 2, goal="all are new")
    assert min(seen) == 1


def test_a_replaced_revision_that_cannot_load_comes_back_after_one_pod(space: Space, pool: Pool) -> None:
    first = start(space, pool.model(1, strategy="Replace"))
    with fewest(space) as seen:
        bad = change(space, pool.model(2, strategy="Replace", held=True))
        refuse(space, bad, "line 3: expected a number")
        message = space.wait_condition("Stalled", "True", "RolledBack")
        assert "line 3: expected a number" in message
        assert "spec.model.revision" in message
        until(lambda: ready(space), lambda n: n == 2, goal="both old pods are back")
    assert min(seen) == 1
    assert applied(space) == first
    until(lambda: rollout(space)["phase"], lambda p: p == "RolledBack", goal="it is all over")
    assert rollout(space)["failed"]["revision"] == bad
    assert rollout(space)["failed"]["reason"] == "ModelConfigInvalid"
    assert space.condition("Ready")[0] == "True"
    assert space.status()["revision"] == {"current": first, "target": bad}
    # The spec is the user's.
    assert space.must(kinds.MODEL_DEPLOYMENT, "m")["spec"]["batching"]["maxBatchSize"] == 2


def test_a_failed_revision_is_not_retried_until_the_spec_changes(space: Space, pool: Pool, operator: Operator) -> None:
    first = start(space, pool.model(1, strategy="Replace"))
    bad = change(space, pool.model(2, strategy="Replace", held=True))
    refuse(space, bad, "no")
    until(lambda: rollout(space).get("phase"), lambda p: p == "RolledBack", goal="it was gone back")
    # Not by a restart, nor by a count, nor by the same spec, nor with the status lost.
    operator.stop()
    space.merge(kinds.MODEL_DEPLOYMENT, "m", {"status": None}, subresource="status")
    operator.start()
    until(
        lambda: rollout(space).get("phase"), lambda p: p == "RolledBack", goal="it is known after a restart", limit_s=30
    )
    space.scale(1)
    space.apply(pool.model(2, replicas=1, strategy="Replace", held=True))
    always(lambda: applied(space), lambda r: r == first, goal="the failed one is left alone", for_s=2)
    # A new one is tried, and then the failed one again, since it is asked for anew.
    third = change(space, pool.model(3, replicas=1, strategy="Replace"))
    space.wait_settled(limit_s=30)
    assert applied(space) == third
    space.apply(pool.model(2, replicas=1, strategy="Replace", held=True))
    until(lambda: applied(space), lambda r: r == bad, goal="it is tried again")
    results = {h["revision"]: h["result"] for h in rollout(space)["history"]}
    assert (results[first], results[third]) == ("Served", "Served")


def test_stay_keeps_trying_what_failed(space: Space, pool: Pool) -> None:
    start(space, pool.model(1))
    bad = change(space, pool.model(2, strategy="Replace", onFailure="Stay", held=True))
    refuse(space, bad, "no")
    message = space.wait_condition("Stalled", "True", "ModelConfigInvalid")
    assert "spec.rollout.onFailure is Stay" in message
    always(lambda: applied(space), lambda r: r == bad, goal="it stays", for_s=1)
    assert ready(space) == 1
    # Rollback is what the field says from now on.
    space.apply(pool.model(2, strategy="Replace", held=True))
    space.wait_condition("Stalled", "True", "RolledBack")
    until(lambda: ready(space), lambda n: n == 2, goal="the old ones are back")


def test_capacity_that_one_pod_cannot_free_is_returned(space: Space, pool: Pool) -> None:
    first = start(space, pool.model(1, surgeTimeout="1s"))
    with fewest(space) as seen:
        change(space, pool.model(1, gpus=2, surgeTimeout="1s"))
        message = space.wait_condition("Stalled", "True", "RolledBack", limit_s=40)
        until(lambda: ready(space), lambda n: n == 2, goal="both old pods are back")
    assert "needs 2 more nvidia.com/gpu" in message
    assert min(seen) == 1
    assert applied(space) == first


def test_records_of_an_earlier_version_restart_no_pod_and_count_as_good(
    space: Space, pool: Pool, operator: Operator
) -> None:
    first = start(space, pool.model(1))
    pods = {p["metadata"]["uid"] for p in servers(space)}
    operator.stop()
    space.merge(kinds.CONTROLLER_REVISION, first, {"metadata": {"annotations": None}})
    operator.start()
    look = lambda: (space.must(kinds.CONTROLLER_REVISION, first)["metadata"].get("annotations") or {}).get(NOTE, "")  # noqa: E731
    until(look, lambda note: "served" in note, goal="it is known as good", limit_s=30)
    assert {p["metadata"]["uid"] for p in servers(space)} == pods
    assert space.settled()


def test_the_last_good_revision_returns_past_the_deadline_after_an_operator_kill(
    space: Space, pool: Pool, operator: Operator
) -> None:
    first = start(space, pool.model(1))
    pool.resize(3)
    with fewest(space) as seen:
        bad = change(space, pool.model(2, held=True))
        refuse(space, bad, "line 3: expected a number")
        # Before the deadline: the reason is told, and all old pods serve.
        assert "line 3" in space.wait_condition("Stalled", "True", "ModelConfigInvalid")
        assert applied(space) == bad
        assert operator.process is not None
        operator.process.kill()
        operator.process.wait()
        operator.start()
        message = space.wait_condition("Stalled", "True", "RolledBack", limit_s=100)
        until(lambda: applied(space), lambda r: r == first, goal="the old template is back")
        until(lambda: len(servers(space)), lambda n: n == 2, goal="the failed pod is gone")
    assert "line 3: expected a number" in message
    assert min(seen) == 2
    wait_single_event(space, "RolledBack")


def test_a_spec_that_names_no_rollout_is_auto(space: Space) -> None:
    model = copy.deepcopy(deployment())
    space.serve()
    assert "rollout" not in model["spec"]
    assert space.must(kinds.MODEL_DEPLOYMENT, "m")["spec"]["rollout"] == {
        "strategy": "Auto", "surgeTimeout": "1m", "onFailure": "Rollback"
    }  # fmt: skip


STEPS = [{"weight": 25, "pause": {"duration": "1s"}}, {"weight": 50, "pause": {"duration": "1s"}}]


def weights(space: Space) -> dict[str, int]:
    """Shares of the requests by slot, as the balancers are told."""
    plan = json.loads(space.must(kinds.CONFIG_MAP, "m-balancer")["data"]["plan.json"])
    return {slot["name"]: slot["weight"] for slot in plan["slots"]}


def pods_of(space: Space, slot: str) -> set[str]:
    """Ready pods of a slot."""
    pods = [p for p in space.every(kinds.POD) if p["metadata"]["name"].startswith(f"m-{slot}-")]
    conditions = {
        p["metadata"]["name"]: {c["type"]: c["status"] for c in p["status"].get("conditions") or ()} for p in pods
    }
    return {name for name, statuses in conditions.items() if statuses.get("Ready") == "True"}


def served(space: Space) -> int:
    """Ready pods of both slots."""
    return len(pods_of(space, "a") | pods_of(space, "b"))


def of_slot(space: Space, slot: str) -> set[tuple[str, str]]:
    """Objects that only this slot needs."""
    return {(k, n) for k, n in space.children() if n in {f"m-{slot}", f"m-server-{slot}"}}


def command_output(kubectl: Kubectl, space: Space, word: str) -> tuple[int, str]:
    """Exit status and output of `halcyon promote m` or `abort m`."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = main([word, "m", "-n", space.namespace, "--kubeconfig", str(kubectl.kubeconfig)])
    return status, out.getvalue()


def test_a_canary_takes_its_share_and_promotion_restarts_no_pod_of_it(
    space: Space, pool: Pool, kubectl: Kubectl
) -> None:
    pool.resize(5)
    canary: dict[str, Any] = {"strategy": "Canary", "canary": {"steps": STEPS, "analysis": {"mode": "Enabled"}}}
    space.serve(**pool.model(1, replicas=4, **canary)["spec"])
    first = applied(space)
    bad = change(space, pool.model(2, replicas=4, **canary))
    until(lambda: weights(space), lambda w: w == {"a": 75, "b": 25}, goal="the canary has its share")
    until(
        lambda: (len(pods_of(space, "a")), len(pods_of(space, "b"))), lambda n: n == (3, 1), goal="the count is split"
    )
    assert applied(space) == first
    # Without evidence it stays at its step, and says so.
    until(lambda: rollout(space).get("message", ""), lambda m: "waiting for analysis" in m, goal="it waits")
    assert rollout(space)["canary"] == {"step": 1, "weight": 25, "pods": 1}
    split = {"total": 4, "ready": 4, "updated": 1, "unschedulable": 0}
    until(lambda: space.status()["pods"], lambda r: r.items() >= split.items(), goal="the status says so")
    canaries = pods_of(space, "b")
    # A word that was said before is taken back by the next one.
    space.merge(kinds.MODEL_DEPLOYMENT, "m", {"metadata": {"annotations": {"serving.halcyon.dev/abort": "another"}}})
    status, output = command_output(kubectl, space, "promote")
    assert (status, output.splitlines()[0]) == (
        0,
        (
            f"modeldeployment.serving.halcyon.dev/m promoted (revision {bad}, at step 1 with 25 % of the requests): it receives "
            "all requests once one of its pods is ready"
        ),
    )
    until(lambda: of_slot(space, "a"), lambda left: not left, goal="the old slot is gone", limit_s=40)
    assert weights(space) == {"b": 100}
    until(lambda: pods_of(space, "b"), lambda pods: len(pods) == 4, goal="the new one has the count")
    assert canaries <= pods_of(space, "b")
    assert space.status()["revision"] == {"current": bad, "target": bad}
    space.wait_condition("Ready", "True", "Ready")
    assert not space.condition("Reconciling")[0]
    # Once the last pod of the old slot is gone too, which its Deployment doesn't wait for.
    until(lambda: rollout(space)["phase"], lambda phase: phase == "Complete", goal="the rollout is over")
    output = "halcyon promote: m has no canary in progress: its rollout is Complete\n"
    assert command_output(kubectl, space, "promote") == (2, output)


def test_a_canary_goes_by_time_without_analysis_and_frees_its_slot(space: Space, pool: Pool) -> None:
    pool.resize(5)
    canary: dict[str, Any] = {"strategy": "Canary", "canary": {"steps": STEPS, "analysis": {"mode": "Disabled"}}}
    space.serve(**pool.model(1, replicas=4, **canary)["spec"])
    second = change(space, pool.model(2, replicas=4, **canary))
    until(lambda: space.status()["revision"].get("current"), lambda r: r == second, goal="it is served", limit_s=40)
    until(lambda: of_slot(space, "a"), lambda left: not left, goal="the old slot is gone", limit_s=40)
    third = change(space, pool.model(3, replicas=4, **canary))
    until(lambda: space.status()["revision"].get("current"), lambda r: r == third, goal="so is the next", limit_s=40)
    until(lambda: of_slot(space, "b"), lambda left: not left, goal="slot b is free again", limit_s=40)
    assert weights(space) == {"a": 100}
    assert [h["result"] for h in rollout(space)["history"]] == ["Served"] * 3


def test_an_aborted_canary_leaves_nothing_and_is_not_tried_again(
    space: Space, pool: Pool, operator: Operator, kubectl: Kubectl
) -> None:
    pool.resize(5)
    canary: dict[str, Any] = {"strategy": "Canary", "canary": {"steps": STEPS, "analysis": {"mode": "Enabled"}}}
    space.serve(**pool.model(1, replicas=4, **canary)["spec"])
    first = applied(space)
    bad = change(space, pool.model(2, replicas=4, **canary))
    until(lambda: len(pods_of(space, "b")), lambda n: n == 1, goal="the canary is ready")
    space.scale(3)
    until(lambda: len(pods_of(space, "a") | pods_of(space, "b")), lambda n: n == 3, goal="the count is followed")
    status, output = command_output(kubectl, space, "abort")
    assert (status, output.split(",")[0]) == (0, f"modeldeployment.serving.halcyon.dev/m aborted (revision {bad}")
    message = space.wait_condition("Stalled", "True", "RolledBack")
    assert "CanaryAborted: the annotation serving.halcyon.dev/abort aborted the canary" in message
    until(lambda: of_slot(space, "b"), lambda left: not left, goal="its slot is gone")
    until(lambda: len(pods_of(space, "a")), lambda n: n == 3, goal="all pods are of the old one")
    operator.stop()
    operator.start()
    operator.wait_leading()
    space.merge(kinds.MODEL_DEPLOYMENT, "m", {"metadata": {"annotations": {"serving.halcyon.dev/abort": None}}})
    always(lambda: of_slot(space, "b"), lambda left: not left, goal="it stays away", for_s=2)
    assert applied(space) == first


def picture(space: Space, operator: Operator) -> str:
    """All that a rollout that stands still can be understood by."""
    pods = [
        (
            p["metadata"]["name"],
            p["spec"].get("nodeName"),
            p["metadata"].get("deletionTimestamp"),
            p["status"].get("phase"),
        )
        for p in space.every(kinds.POD)
    ]
    deployments = [
        (d["metadata"]["name"], d["spec"]["replicas"], d["spec"]["strategy"], d.get("status"))
        for d in space.every(kinds.DEPLOYMENT)
    ]
    records = [
        (r["metadata"]["name"], r["metadata"].get("annotations")) for r in space.every(kinds.CONTROLLER_REVISION)
    ]
    return "\n".join(map(str, [space.status(), pods, deployments, records, operator.tail()]))


HALF: dict[str, Any] = {
    "surgeTimeout": "2s",
    "canary": {"steps": [{"weight": 50, "pause": {"duration": "1s"}}], "analysis": {"mode": "Enabled"}},
}


def half(space: Space, pool: Pool) -> str:
    """Four GPUs, of which a canary has two; its name."""
    pool.resize(4)
    space.serve(**pool.model(1, replicas=4, strategy="Canary", **HALF)["spec"])
    canary = change(space, pool.model(2, replicas=4, strategy="Canary", **HALF))
    split = lambda: (len(pods_of(space, "a")), len(pods_of(space, "b")))  # noqa: E731  # shorter so
    until(split, lambda n: n == (2, 2), goal="the canary has half of the pods", limit_s=40)
    return canary


def test_a_superseded_canary_goes_pod_by_pod_while_no_gpu_is_free(space: Space, pool: Pool, operator: Operator) -> None:
    half(space, pool)
    with fewest(space, prefixes=("m-a-", "m-b-")) as seen:
        third = change(space, pool.model(3, replicas=4, strategy="Auto", **HALF))
        until(lambda: weights(space), lambda w: w.get("b", 0) < 50, goal="the canary gives way")
        operator.stop()
        operator.start()
        operator.wait_leading()
        until(
            lambda: space.status()["revision"].get("current"),
            lambda r: r == third,
            goal="it is served",
            limit_s=40,
            context=lambda: picture(space, operator),
        )
        until(
            lambda: (of_slot(space, "b"), served(space)), lambda n: n == (set(), 4), goal="the slot is gone", limit_s=40
        )
    assert min(seen) >= 3


def test_a_superseded_canary_that_waits_for_capacity_is_aborted_by_its_command(
    space: Space, pool: Pool, kubectl: Kubectl
) -> None:
    second = half(space, pool)
    third = change(space, pool.model(3, replicas=4, strategy="Surge", **HALF))
    space.wait_condition("Reconciling", "True", "RolloutBlocked")
    status, output = command_output(kubectl, space, "abort")
    assert (status, f"m aborted (revision {second}, superseded by a newer spec)" in output) == (0, True), output
    until(lambda: of_slot(space, "b"), lambda left: not left, goal="nothing is left of it", limit_s=30)
    # The one that serves has its GPUs now, and Surge takes none from it.
    pool.resize(5)
    space.wait_settled(limit_s=40)
    assert applied(space) == third
    status, output = command_output(kubectl, space, "abort")
    assert status == 2
    assert "m has no canary in progress" in output
