"""Oracles of the fault campaigns: two runs that differ in identities only are equal, and everything else is a difference."""

import copy
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from halcyon.api.documents.balancer_plan import DRAIN_HEADER
from tests.faults import mutations
from tests.faults.acto import current, deployment_of
from tests.faults.campaigns import Workbench
from tests.faults.oracles import MASKED, Counts, Outcome, canonical, differences, divergences
from tests.faults.plans import MODEL, Plan, Point
from tests.faults.rest import unsettled
from tests.faults.results import Reference, Result, Results, load, save


def objects(space: str, number: int) -> list[tuple[str, dict[str, Any]]]:
    """A Deployment with its ReplicaSet and pod, as one of several equivalent runs has them."""
    revision = f"6b7f9c{number}"
    owner = {"kind": "Deployment", "name": "m-a", "uid": f"uid-{number}-d"}
    labels = {"pod-template-hash": revision}

    def meta(name: str, **more: Any) -> dict[str, Any]:
        known = {
            "namespace": space,
            "resourceVersion": str(number),
            "creationTimestamp": f"2026-01-0{number}T00:00:00Z",
        }
        return {"name": name, **known, **more}

    replica_set = meta(
        f"m-a-{revision}", uid=f"uid-{number}-r", labels=labels, ownerReferences=[owner], generation=number
    )
    replica_set["annotations"] = {"deployment.kubernetes.io/revision": "1"}
    pod = meta(f"m-a-{revision}-x{number}x4z", uid=f"uid-{number}-p", labels=labels, generateName=f"m-a-{revision}-")
    return [
        ("Deployment", {"metadata": meta("m-a", uid=f"uid-{number}-d"), "spec": {"replicas": 1}}),
        ("ReplicaSet", {"metadata": replica_set, "spec": {"replicas": 1}}),
        ("Pod", {"metadata": pod, "status": {"podIP": f"10.0.0.{number}", "phase": "Running"}}),
    ]


def outcome(space: str, number: int, change: Any = None) -> Outcome:
    state = copy.deepcopy(objects(space, number))
    if change:
        change(state)
    return Outcome(canonical(state, space), Counts(Counter({("Deployment", "m-a"): 1})))


def test_runs_that_differ_in_identities_only_are_equal() -> None:
    assert divergences(outcome("f-one", 1), outcome("f-two", 2)) == []


def test_ages_in_a_message_are_measurements_of_the_moment() -> None:
    def silent_for(seconds: int) -> Any:
        def change(state: Any) -> None:
            state[0][1]["status"] = {"message": f"a balancer reported last {seconds} s ago; the limit is 10 s"}

        return change

    assert divergences(outcome("f-one", 1, silent_for(10)), outcome("f-two", 2, silent_for(20))) == []


def test_changed_fields_of_any_object_are_differences() -> None:
    def scale(state: Any) -> None:
        state[0][1]["spec"]["replicas"] = 2

    assert divergences(outcome("f-one", 1, scale), outcome("f-two", 2)) == [
        "Deployment m-a[0].spec.replicas: 2, should be 1"
    ]


def test_a_former_replica_set_is_no_difference_after_a_reversal() -> None:
    def reversed_change(state: Any) -> None:
        former = copy.deepcopy(state[1])
        former[1]["metadata"] |= {"name": "m-a-other", "uid": "uid-former", "labels": {"pod-template-hash": "other"}}
        former[1]["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": "2"}
        state[1][1]["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": "3"}
        state.append(former)

    def of_the_change(state: Any) -> None:
        reversed_change(state)
        state[-1][1]["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": "4"}
        state[-1][1]["spec"] = {"replicas": 2}

    before, after, changed = (
        current(outcome(space, number, change).state)
        for space, number, change in (("f-one", 1, None), ("f-two", 2, reversed_change), ("f-three", 3, of_the_change))
    )
    assert differences(after, before) == []
    assert differences(changed, before) == ["ReplicaSet m-a[0].spec.replicas: 2, should be 1"]


def test_owners_that_no_longer_exist_are_differences() -> None:
    def orphan(state: Any) -> None:
        state[1][1]["metadata"]["ownerReferences"][0]["uid"] = "uid-of-a-former-one"

    differing = divergences(outcome("f-one", 1, orphan), outcome("f-two", 2))
    assert [line.partition(":")[0] for line in differing] == ["ReplicaSet m-a[0].metadata.ownerReferences[0].uid"]


def test_missing_and_additional_objects_are_differences() -> None:
    def drop(state: Any) -> None:
        state.pop()

    assert divergences(outcome("f-one", 1, drop), outcome("f-two", 2)) == ["Pod m-a: is missing"]
    assert len(divergences(outcome("f-one", 1), outcome("f-two", 2, drop))) == 1


def test_additional_creates_and_deletes_are_differences_in_equal_states() -> None:
    actual, expected = outcome("f-one", 1), outcome("f-two", 2)
    actual.counts.created["Pod", "m-a"] = 2
    actual.counts.deleted["Pod", "m-a"] = 1
    assert divergences(actual, expected) == [
        "Pod m-a: created 2 times, should be 0",
        "Pod m-a: deleted 1 times, should be 0",
    ]


def test_documents_in_a_text_are_compared_field_by_field() -> None:
    def documented(size: int) -> Any:
        def change(state: Any) -> None:
            state[0][1]["data"] = {"plan.json": json.dumps({"size": size, "resourceVersion": str(size)})}

        return change

    differing = divergences(outcome("f-one", 1, documented(1)), outcome("f-two", 2, documented(2)))
    assert differing == ["Deployment m-a[0].data.plan.json.size: 1, should be 2"]


def test_masked_fields_are_at_most_five_with_a_reason_each() -> None:
    assert len(MASKED) <= 5
    assert all(len(reason) > 20 for reason in MASKED.values())


def test_results_are_the_same_after_they_were_written(tmp_path: Path) -> None:
    shared, of_the_machine = tmp_path / "shared", tmp_path / "machine"
    assert load(shared, "create", of_the_machine) == Results("create")
    results = Results("create", wall_s=1.5)
    points = [Point(MODEL, "PATCH", "services/m", 1)]
    results.reference = Reference(points, outcome("f-one", 1), ["services ADDED m 1"], "code")
    results.add("create/crash-before/x", Result(hit=True, problems=["a"], commit="c", code="code", seconds=2.5))
    save(shared, results, of_the_machine)
    assert load(shared, "create", of_the_machine) == results
    assert results.problems() == {"create/crash-before/x": ["a"]}
    assert results.runs == 1


def test_outcomes_of_a_run_are_of_one_machine_and_code(tmp_path: Path) -> None:
    shared, of_the_machine = tmp_path / "shared", tmp_path / "machine"
    results = Results("create", Reference([], outcome("f-one", 1), [], "code"))
    save(shared, results, of_the_machine)
    for elsewhere in (load(shared, "create"), load(shared, "create", tmp_path / "another")):
        assert elsewhere.reference == Reference([], None, [], "code")
    results.reference = Reference([], None, [], "newer")
    save(shared, results, of_the_machine)
    assert load(shared, "create", of_the_machine).reference == results.reference


def urgencies(known: Results, plans: Sequence[Plan], *, again: bool = False) -> list[int | None]:
    """Ranks of plans on a machine that tests the version `new` after `old` and `older`."""
    site: Any = None
    bench = Workbench(site, {"create": known}, 0.0, "c", "new", {"older": 0, "old": 1}, again=again)
    return [bench.urgency(plan) for plan in plans]


def test_plans_without_a_result_are_first_and_the_oldest_code_next() -> None:
    plans = [Plan("create", "crash-before", name) for name in ("none", "wrong", "older", "old", "new")]
    known = Results("create")
    for plan in plans[1:]:
        code = "old" if plan.place == "wrong" else plan.place
        known.add(plan.id, Result(True, ["a"] if plan.place == "wrong" else [], "c", code))
    ranks = urgencies(known, plans)
    assert ranks[-1] is None
    numbers = [rank for rank in ranks if rank is not None]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 4


def test_divergences_are_run_again_on_request_only() -> None:
    plan = Plan("create", "crash-before", "wrong")
    known = Results("create")
    known.add(plan.id, Result(True, ["a"], "c", "new"))
    assert urgencies(known, [plan]) == [None]
    assert urgencies(known, [plan], again=True) == [1]


def test_counters_of_changes_are_no_difference_after_a_reversal() -> None:
    def counted(number: int) -> Any:
        def change(state: Any) -> None:
            deployment = state[0][1]
            deployment["metadata"] |= {"generation": number}
            deployment["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": str(number)}
            deployment["status"] = {"observedGeneration": number, "replicas": number}
            kept = {"namespace": state[0][1]["metadata"]["namespace"], "uid": f"uid-{number}", "resourceVersion": "1"}
            state += [
                ("ControllerRevision", {"metadata": {"name": f"m-{n}", **kept, "uid": f"c-{n}"}, "revision": n})
                for n in range(number)
            ]
            state.append(("ConfigMap", {"metadata": {"name": f"m-{number}-files", **kept}, "immutable": True}))
            counters = {f"deployment.kubernetes.io/{name}": str(number) for name in ("revision", "max-replicas")}
            named = {"name": "m-a-7dc659d6b8", "labels": {"pod-template-hash": "7dc659d6b8"}, "annotations": counters}
            state.append(("ReplicaSet", {"metadata": {**named, **kept, "uid": "uid-of-rs"}}))

        return change

    before, after = (current(outcome("f-one", 1, counted(number)).state) for number in (1, 3))
    assert differences(after, before) == []


def test_numbers_with_as_many_digits_as_a_hash_are_compared() -> None:
    def limited(value: int) -> Any:
        def change(state: Any) -> None:
            state[0][1]["spec"] = {"limit": value, "name": f"m-{value:010x}"}

        return change

    first, second = (current(outcome("f-one", 1, limited(value)).state) for value in (2147483648, 2147483649))
    assert differences(first, second) == ["Deployment m-a[0].spec.limit: 2147483648, should be 2147483649"]


def test_names_and_certificates_of_an_installation_are_no_difference() -> None:
    def plan(installation: str) -> Any:
        pem = f"-----BEGIN CERTIFICATE-----\\n{installation}\\n-----END CERTIFICATE-----\\n"
        body = f'{{"server_name": "halcyon.{installation}.svc", "ca_pem": "{pem}"}}'
        return [("ConfigMap", {"metadata": {"name": "m", "uid": installation}, "data": {"plan.json": body}})]

    states = [canonical(plan(name), "f-one", {name: "INSTALLATION"}) for name in ("halcyon-1a", "halcyon-2b")]
    assert differences(states[0], states[1]) == []


def test_nodes_of_pods_may_differ_if_each_has_one() -> None:
    def on(name: str) -> Any:
        def change(state: Any) -> None:
            state[2][1]["spec"] = {"nodeName": name} if name else {}
            state[2][1]["status"]["hostIP"] = f"10.1.0.{len(name)}"

        return change

    assert divergences(outcome("f-one", 1, on("node")), outcome("f-two", 2, on("gpus"))) == []
    assert divergences(outcome("f-one", 1, on("")), outcome("f-two", 2, on("gpus"))) == [
        "Pod m-a[0].spec.nodeName: is missing"
    ]


def test_keys_of_a_model_s_drain_are_no_difference() -> None:
    def drained(key: str) -> Any:
        def change(state: Any) -> None:
            state[0][1]["spec"]["args"] = [f"--drain-key={key}"]
            state[0][1]["spec"]["headers"] = [{"name": DRAIN_HEADER, "value": key}]

        return change

    assert divergences(outcome("f-one", 1, drained("0123456789")), outcome("f-two", 2, drained("abcdef0123"))) == []


def test_gpu_times_and_former_replica_sets_are_no_difference() -> None:
    def costly(gpu_s: int) -> Any:
        def change(state: Any) -> None:
            meta = {"name": "m", "uid": f"uid-{gpu_s}", "resourceVersion": "1"}
            state.append(("ModelDeployment", {"metadata": meta, "status": {"cost": {"gpuSeconds": gpu_s}}}))
            former = copy.deepcopy(state[1])
            former[1]["metadata"] |= {
                "name": "m-a-other",
                "uid": "uid-former",
                "labels": {"pod-template-hash": "other"},
            }
            former[1]["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": "0"}
            former[1]["spec"]["replicas"] = gpu_s
            state.append(former)

        return change

    before, after = (current(outcome("f-one", 1, costly(gpu_s)).state) for gpu_s in (1, 2))
    assert differences(after, before) == []


def of_deployment(**status: int) -> dict[str, Any]:
    return {
        "metadata": {"name": "m-a", "generation": 2},
        "spec": {"replicas": 2},
        "status": {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, **status},
    }


def of_pod(**conditions: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "m-a-1"},
        "status": {"conditions": [{"type": name, "status": status} for name, status in conditions.items()]},
    }


def test_a_wave_waits_for_a_rollout_until_its_pods_are_unavailable() -> None:
    assert unsettled([of_deployment()], []) == []
    assert unsettled([of_deployment(observedGeneration=1)], []) == ["m-a"]
    assert unsettled([of_deployment(replicas=1)], []) == ["m-a"]
    assert unsettled([of_deployment(replicas=3, updatedReplicas=1)], []) == ["m-a"]
    assert unsettled([of_deployment(replicas=3, updatedReplicas=1, unavailableReplicas=1)], []) == []
    assert unsettled([{**of_deployment(), "status": {}}], []) == ["m-a"]


def test_a_wave_waits_for_pods_until_they_are_ready_or_unschedulable() -> None:
    ready = of_pod(PodScheduled="True", Ready="True")
    terminating = {**ready, "metadata": {"name": "m-a-1", "deletionTimestamp": "2026-11-30T09:00:00Z"}}
    assert unsettled([], [ready, of_pod(PodScheduled="False")]) == []
    assert unsettled([], [of_pod(PodScheduled="True", Ready="False")]) == ["m-a-1"]
    assert unsettled([], [of_pod(), {"metadata": {"name": "m-a-2"}}]) == ["m-a-1", "m-a-2"]
    assert unsettled([], [terminating]) == ["m-a-1"]


def test_models_of_a_wave_claim_hostnames_of_their_own() -> None:
    """A mutated name or hostname stays as it is."""
    usual = {"traffic": {"gateway": mutations.GATEWAY}}
    mutated = {"traffic": {"gateway": {**mutations.GATEWAY, "name": "other"}}}
    first, second, changed = (
        deployment_of(name, spec)["spec"]["traffic"]["gateway"]
        for name, spec in (("x", usual), ("y", usual), ("x", mutated))
    )
    assert (first["name"], second["name"], changed["name"]) == ("edge-x", "edge-y", "other")
    assert first["http"]["hostnames"] == changed["http"]["hostnames"] == ["x.digits.example.com"]
    assert second["grpc"]["hostnames"] == ["y.grpc.digits.example.com"]
    assert usual["traffic"]["gateway"]["name"] == "edge"
