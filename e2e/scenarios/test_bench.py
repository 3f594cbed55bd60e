"""`halcyon bench` with real pods: a copy of a served model is measured beside it, and nothing is left."""

from __future__ import annotations

import json
from typing import Any

import pytest

from demo.kube import Kube, wait_for
from demo.models import DIGITS
from halcyon.main import main
from halcyon_cli.bench.options.inputs import InputOptions
from halcyon_cli.bench.options.load import LoadOptions
from halcyon_cli.bench.options.place import PlaceOptions
from halcyon_cli.bench.options.server import ServerOptions
from halcyon_cli.bench.place.bench_request import BenchRequest
from halcyon_cli.bench.trial.trial_session import TrialSession
from halcyon_cli.commands.bench import main as bench_command
from halcyon_cli.kube.client import Target
from halcyon_cli.kube.object_writer import ObjectWriter
from halcyon_tune.points import Callers, Configuration

pytestmark = [pytest.mark.more, pytest.mark.usefixtures("digits")]


@pytest.fixture(autouse=True)
def loaded(kube: Kube) -> None:
    """Wait until the operator has recorded the serving revision, which follows the first answer."""

    def is_recorded() -> bool:
        return bool(((kube.model(DIGITS) or {}).get("status") or {}).get("revision", {}).get("current"))

    wait_for(is_recorded, goal="the serving revision of digits", limit_s=60)


def bench(kube: Kube, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["bench", *arguments, "-n", "default", "--kubeconfig", str(kube.kubeconfig)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def leftovers(kube: Kube) -> str:
    """Return the names of the objects that a measurement of digits creates."""
    kinds = "jobs,modeldeployments,deployments,services,configmaps,pods,networkpolicies"
    return "\n".join(
        line
        for line in kube("get", kinds, "-o", "name").splitlines()
        if f"{DIGITS}-bench" in line and not line.endswith("-history")
    )


def test_a_copy_is_measured_and_nothing_is_left(kube: Kube, capsys: pytest.CaptureFixture[str]) -> None:
    before = kube.model(DIGITS)
    assert before is not None

    status, out, err = bench(kube, capsys, DIGITS, "--duration", "5s", "--warm-up", "2s", "-o", "json")

    assert status in {0, 1}, err
    document: dict[str, Any] = json.loads(out)
    assert document["requests"]["answered"] == document["requests"]["due"] > 20
    place = document["place"]
    assert (place["kind"], place["name"], place["measured"]) == ("copy", DIGITS, f"{DIGITS}-bench")
    assert place["node"] == place["client_node"]
    assert place["image"].endswith("tritonserver-cpu:24.10")
    # The client reads the metrics of the copy's servers and balancers, though it has no token.
    assert [replica["pod"].startswith(f"{DIGITS}-bench-") for replica in document["hardware"]["replicas"]] == [True]
    assert {part["name"]: part for part in document["phases"]["parts"]}["balancer_queued"]["mean"]["value"] is not None
    wait_for(lambda: not leftovers(kube), goal="nothing of the measurement is left", limit_s=90)
    after = kube.model(DIGITS)
    assert after is not None
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert after["spec"] == before["spec"]

    assert bench(kube, capsys, "history", DIGITS)[1].count("copy") == 1


def test_a_trial_pod_shares_memory_and_its_cgroup_with_the_client(
    kube: Kube, capsys: pytest.CaptureFixture[str]
) -> None:
    load = ("--callers", "4", "--duration", "5s", "--warm-up", "2s", "--shared-memory", "system")
    status, out, err = bench(kube, capsys, DIGITS, "--trial", *load, "-o", "json")

    assert status in {0, 1}, err
    document: dict[str, Any] = json.loads(out)
    assert document["requests"]["answered"] == document["requests"]["due"] > 20
    assert document["target"]["shared_memory"] == "system"
    place = document["place"]
    assert (place["kind"], place["name"], place["routing"]) == ("trial", DIGITS, "direct")
    assert place["image"].endswith("tritonserver-cpu:24.10")
    hardware = document["hardware"]
    assert hardware["server_cpu"]["mean"]["value"] is not None, hardware["server_cpu"]
    # Only the server's own cgroup has these.
    assert hardware["server_oom_kills"]["value"] == 0, hardware["server_oom_kills"]
    wait_for(lambda: not leftovers(kube), goal="nothing of the measurement is left", limit_s=90)


def test_points_of_a_tuning_are_measured_in_a_trial_pod(kube: Kube, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = ObjectWriter(Target("tune", kubeconfig=kube.kubeconfig, namespace="default"))
    request = BenchRequest(
        name=DIGITS, server=ServerOptions(), load=LoadOptions(), inputs=InputOptions(), place=PlaceOptions(trial=True)
    )
    with TrialSession(
        cluster, cluster.model(DIGITS), request, bench_command, run_s=120, progress=lambda _: None
    ) as session:
        before = session.config()
        point = session.points().measure(Configuration(instances=1, max_batch=4), Callers(callers=4))
    assert before["max_batch_size"] != 4
    assert point.failure is None, point.why
    assert point.throughput_rps > 20
    assert max(point.batches) <= 4
    assert point.memory_bytes
    assert "no balancer" in capsys.readouterr().err
    wait_for(lambda: not leftovers(kube), goal="nothing of the measurement is left", limit_s=90)


def test_a_model_is_tuned_in_a_trial_pod_and_stays_as_it_is(kube: Kube, capsys: pytest.CaptureFixture[str]) -> None:
    before = kube.model(DIGITS)
    assert before is not None
    options = ("--objective", "2s", "--budget", "100s", "--rate", "100", "-o", "json")
    status = main(["tune", DIGITS, *options, "-n", "default", "--kubeconfig", str(kube.kubeconfig)])
    out, err = capsys.readouterr()

    assert status in {0, 1}, err
    document: dict[str, Any] = json.loads(out)
    assert document["points"] >= 2, document
    assert document["seconds"] <= 100
    first = document["steps"][0]
    assert first["step"] == 1
    assert first["found"][0].startswith("S(1) ")
    assert "batching" in document["tuned"]
    wait_for(lambda: not leftovers(kube), goal="nothing of the tuning is left", limit_s=90)
    after = kube.model(DIGITS)
    assert after is not None
    assert after["spec"] == before["spec"]


def test_a_served_model_is_loaded_until_the_bound(kube: Kube, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = bench(kube, capsys, DIGITS, "--live", "--rate", "20", "--duration", "4s", "-o", "json")

    assert status in {0, 1}, err
    place = json.loads(out)["place"]
    assert (place["kind"], place["measured"]) == ("live", DIGITS)
    assert main(["explain", DIGITS, "-n", "default", "--kubeconfig", str(kube.kubeconfig)]) == 0
    assert "halcyon bench --live" in capsys.readouterr().out
    wait_for(lambda: not leftovers(kube), goal="nothing of the measurement is left", limit_s=90)
