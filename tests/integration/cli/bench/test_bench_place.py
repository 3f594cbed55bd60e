"""`halcyon bench NAME` on a real API server: what it makes, what it refuses, and that nothing of it is left.

Pods are KWOK's and have no logs, so no client has a result here; the scenarios have that part.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from halcyon.kube import kinds
from halcyon.main import main
from halcyon_cli.bench.place import admission, client_job, copied_model, trial_pod
from halcyon_cli.bench.place.beside_model import BesideModel, Deadlines
from halcyon_cli.bench.place.client_job import JOB, ClientSettings
from halcyon_cli.kube.client import Target
from halcyon_cli.kube.object_writer import ObjectWriter
from tests.integration.operator_process import Operator, running
from tests.integration.operator_space import Space
from tests.integration.waiting import until

pytestmark = [pytest.mark.more, pytest.mark.usefixtures("operator")]

Run = Callable[..., tuple[int, str]]
IMAGE = "localhost/halcyon-bench:dev"


@pytest.fixture
def operator(cluster: Cluster, namespace: str, tmp_path: Any) -> Iterator[Operator]:
    """Start an operator for this namespace alone."""
    with running(cluster, tmp_path, watch=namespace) as started:
        yield started


@pytest.fixture
def bench(cluster: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """`halcyon bench ...` in the test's namespace: (exit status, stderr)."""

    def run(*arguments: str) -> tuple[int, str]:
        target = ("-n", namespace, "--kubeconfig", str(cluster.kubeconfig), "--bench-image", IMAGE)
        return main(["bench", *arguments, *target]), capsys.readouterr().err

    return run


def client(namespace: str) -> ClientSettings:
    return ClientSettings(
        model="m",
        namespace=namespace,
        image=IMAGE,
        arguments=("bench", "--to-log"),
        measured="m-bench",
        files={"000-x": b"1"},
        metrics=(("m-bench", "server"), ("m-bench", "balancer")),
    )


def writer(cluster: Cluster, namespace: str) -> ObjectWriter:
    return ObjectWriter(Target("bench", kubeconfig=cluster.kubeconfig, namespace=namespace))


def left(space: Space) -> list[str]:
    """Names of everything that a measurement of `m` or `n` makes."""
    every = (
        JOB,
        kinds.MODEL_DEPLOYMENT,
        kinds.DEPLOYMENT,
        kinds.SERVICE,
        kinds.CONFIG_MAP,
        kinds.POD,
        kinds.NETWORK_POLICY,
    )
    return [
        obj["metadata"]["name"]
        for kind in every
        for obj in space.every(kind)
        if obj["metadata"]["name"].startswith(("m-bench", "n-bench"))
    ]


def settled(space: Space) -> dict[Any, str]:
    """Versions of all objects, once the operator has written the last status of what was just served."""
    before: dict[Any, str] = {}

    def is_quiet() -> bool:
        nonlocal before
        was, before = before, space.versions()
        time.sleep(2)
        return was == before

    until(is_quiet, bool, goal="no object is written any more", limit_s=60)
    return before


def test_a_measurement_makes_a_copy_and_leaves_nothing(space: Space, bench: Run) -> None:
    space.serve(replicas=2)
    before = settled(space)

    status, err = bench("m", "--duration", "1s", "--start-timeout", "60s")

    # KWOK's pods have no log, so this measurement ends when its client has.
    assert status == 2, err
    assert "the result can't be read from the client's log" in err, err
    until(lambda: left(space), lambda names: not names, goal="nothing is left", limit_s=60)
    after = space.versions()
    assert {key: after.get(key) for key in before if key[0] != "Event"} == {
        key: version for key, version in before.items() if key[0] != "Event"
    }


def test_a_copy_is_served_beside_the_original_and_owned_by_the_job(
    space: Space, cluster: Cluster, namespace: str
) -> None:
    space.serve(replicas=2)
    original = space.must(kinds.MODEL_DEPLOYMENT, "m")
    reached = writer(cluster, namespace)
    copy = copied_model.copied(original, [])
    with BesideModel(reached, client(namespace), copy, Deadlines(start_s=60, run_s=60), lambda _: None) as beside:
        with pytest.raises(Exception, match="can't be read from the client's log"):
            beside.run(network_policy=True)
        stored = space.must(kinds.MODEL_DEPLOYMENT, "m-bench")
        job = space.must(JOB, "m-bench")
        assert stored["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
        assert stored["metadata"]["labels"]["serving.halcyon.dev/copy-of"] == "m"
        assert space.condition("Accepted", "m-bench")[0] == "True"
        assert space.must(kinds.CONFIG_MAP, "m-bench")["metadata"]["ownerReferences"][0]["kind"] == "Job"
        assert space.must(kinds.NETWORK_POLICY, "m-bench")["spec"]["policyTypes"] == ["Ingress", "Egress"]
        for component in ("server", "balancer"):
            assert space.must(kinds.SERVICE, f"m-bench-{component}")["metadata"]["ownerReferences"][0]["kind"] == "Job"
            assert space.must(kinds.NETWORK_POLICY, f"m-bench-{component}")["spec"]["policyTypes"] == ["Ingress"]
        pods = [pod for pod in space.every(kinds.POD) if pod["metadata"]["labels"].get(client_job.BENCH_LABEL) == "m"]
        assert len(pods) == 1
        assert not any("serviceAccountToken" in str(volume) for volume in pods[0]["spec"]["volumes"])
        # The original's pods are the original's alone, for its Service, its scaling and its metrics.
        own = [
            p
            for p in space.every(kinds.POD)
            if p["metadata"]["labels"].get("serving.halcyon.dev/model-deployment") == "m"
        ]
        assert {p["metadata"]["name"].rsplit("-", 2)[0] for p in own} == {"m-a", "m-balancer"}
    until(lambda: left(space), lambda names: not names, goal="nothing is left", limit_s=60)
    assert space.must(kinds.MODEL_DEPLOYMENT, "m")["metadata"]["generation"] == original["metadata"]["generation"]


def test_two_copies_have_one_client_and_go_together(space: Space, cluster: Cluster, namespace: str) -> None:
    for name in ("m", "n"):
        space.serve(name)
    first, second = (copied_model.copied(space.must(kinds.MODEL_DEPLOYMENT, name), []) for name in ("m", "n"))
    both = replace(
        client(namespace),
        others=("n-bench",),
        metrics=tuple((name, component) for name in ("m-bench", "n-bench") for component in ("server", "balancer")),
    )
    reached, limits = writer(cluster, namespace), Deadlines(start_s=60, run_s=60)
    with BesideModel(reached, both, first, limits, lambda _: None, others=[second]) as beside:
        with pytest.raises(Exception, match="can't be read from the client's log"):
            beside.run(network_policy=True)
        job = space.must(JOB, "m-bench")
        for name in ("m-bench", "n-bench"):
            stored = space.must(kinds.MODEL_DEPLOYMENT, name)
            assert stored["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
            assert space.must(kinds.SERVICE, f"{name}-server")["spec"]["clusterIP"] == "None"
        pods = [pod for pod in space.every(kinds.POD) if pod["metadata"]["labels"].get(client_job.BENCH_LABEL)]
        assert len(pods) == 1
    until(lambda: left(space), lambda names: not names, goal="nothing is left", limit_s=60)


def test_models_in_turns_are_measured_by_one_command(space: Space, bench: Run) -> None:
    for name in ("m", "n"):
        space.serve(name)
    status, err = bench("n", "--against", "m", "--callers", "1", "--duration", "1s", "--start-timeout", "60s")
    assert status == 2
    assert "one after the other" not in err
    assert "can't be read from the client's log" in err, err
    until(lambda: left(space), lambda names: not names, goal="nothing is left", limit_s=60)


def test_a_killed_command_leaves_nothing_once_its_lease_is_over(space: Space, cluster: Cluster, namespace: str) -> None:
    space.serve()
    reached = writer(cluster, namespace)
    copy = copied_model.copied(space.must(kinds.MODEL_DEPLOYMENT, "m"), [])
    # As a command that is killed here: the Job, with a lease of 5 s in place of 150, and its copy.
    job_document = client_job.job(client(namespace), deadline_s=5)
    job_document["spec"]["ttlSecondsAfterFinished"] = 1
    job = reached.create(JOB, job_document)
    assert job is not None
    assert reached.create(kinds.MODEL_DEPLOYMENT, copy.owned_by(job)) is not None
    until(lambda: space.condition("Accepted", "m-bench")[0], "True".__eq__, goal="the copy is served", limit_s=20)
    begin = time.monotonic()
    until(lambda: left(space), lambda names: not names, goal="nothing is left", limit_s=60)
    assert time.monotonic() - begin < 60


def test_a_second_measurement_is_refused(space: Space, bench: Run, cluster: Cluster, namespace: str) -> None:
    space.serve()
    assert writer(cluster, namespace).create(JOB, client_job.job(client(namespace))) is not None
    status, err = bench("m")
    assert status == 2
    assert "m is being measured since" in err
    assert f"kubectl delete job m-bench -n {namespace}" in err


def test_a_full_quota_refuses_before_anything_is_made(space: Space, bench: Run, namespace: str) -> None:
    space.serve()
    quota = {"metadata": {"name": "team"}, "spec": {"hard": {"pods": "4"}}}
    space.api.create(f"/api/v1/namespaces/{namespace}/resourcequotas", quota)
    until(
        lambda: (space.every(kinds.RESOURCE_QUOTA)[0].get("status") or {}).get("used"),
        bool,
        goal="the quota has counted",
    )
    status, err = bench("m")
    assert status == 2
    assert "ResourceQuota team allows" in err, err
    assert "pods is 3 of 4 used" in err, err
    assert left(space) == []


@pytest.mark.parametrize("place", [(), ("--trial",)], ids=["copy", "trial"])
def test_namespace_of_the_restricted_standard_admits_the_client(
    space: Space, bench: Run, namespace: str, place: tuple[str, ...]
) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    path = f"/api/v1/namespaces/{namespace}"
    assert (
        space.api.call(
            "PATCH", path, {"metadata": {"labels": labels}}, content_type="application/merge-patch+json"
        ).status
        == 200
    )
    space.serve()
    status, err = bench("m", *place, "--duration", "1s", "--start-timeout", "60s")
    assert status == 2
    assert "can't be read from the client's log" in err, err


def test_a_trial_pod_is_made_without_a_copy(space: Space, cluster: Cluster, namespace: str) -> None:
    space.serve(replicas=2)
    reached = writer(cluster, namespace)
    copy = copied_model.copied(space.must(kinds.MODEL_DEPLOYMENT, "m"), [])
    trial = trial_pod.trial_pod(admission.rendered(reached, copy, "m"), client(namespace), model=copy.model)
    limits = Deadlines(start_s=60, run_s=60)
    with BesideModel(reached, client(namespace), None, limits, lambda _: None, trial=trial) as beside:
        name = beside.start(network_policy=True)["metadata"]["name"]
        pod = space.must(kinds.POD, name)
        assert [container["name"] for container in pod["spec"]["initContainers"]] == ["fetch", "triton"]
        assert not any("serviceAccountToken" in str(volume) for volume in pod["spec"]["volumes"])
        # No Service of a model selects it.
        assert "serving.halcyon.dev/model-deployment" not in pod["metadata"]["labels"]
        objects = [obj for kind in (kinds.CONFIG_MAP, kinds.NETWORK_POLICY) for obj in space.every(kind)]
        own = [obj for obj in objects if obj["metadata"]["name"].startswith("m-bench")]
        assert {obj["metadata"]["ownerReferences"][0]["kind"] for obj in own} == {"Job"}
        assert {volume["configMap"]["name"] for volume in pod["spec"]["volumes"] if "configMap" in volume} <= {
            obj["metadata"]["name"] for obj in own
        }
        assert [obj for obj in space.every(kinds.MODEL_DEPLOYMENT) if obj["metadata"]["name"] != "m"] == []
    until(lambda: left(space), lambda names: not names, goal="nothing is left", limit_s=60)


def test_history_of_a_model_without_results_says_how_to_make_one(
    space: Space, cluster: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    space.serve()
    assert main(["bench", "history", "m", "-n", namespace, "--kubeconfig", str(cluster.kubeconfig)]) == 0
    assert "m has no results yet; halcyon bench m makes one" in capsys.readouterr().out
