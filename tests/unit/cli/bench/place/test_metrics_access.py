"""The client's way to the metrics of its copy: Services by name, and who may read."""

from __future__ import annotations

from dataclasses import replace

import kubernetes_validate
import pytest

from halcyon.render import names
from halcyon_cli.bench.options.sampling import SamplingOptions
from halcyon_cli.bench.place import client_job, metrics_access
from halcyon_cli.bench.place.client_job import ClientSettings
from halcyon_measure.breakdown import hardware
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.observations import Observations, Readings, ServerSample
from tests.bench_documents import bench_document

BOTH = (names.SERVER, names.BALANCER)
SETTINGS = ClientSettings(
    model="digits",
    namespace="team",
    image="x",
    arguments=(),
    measured="digits-bench",
    metrics=tuple(("digits-bench", component) for component in BOTH),
)
OWNER = {"metadata": {"name": "digits-bench", "uid": "j-1"}}


@pytest.mark.parametrize(
    ("is_direct", "is_copy", "network_policies", "expected"),
    [
        (False, True, True, BOTH),
        (True, True, True, (names.SERVER,)),
        (False, False, False, BOTH),
        # The pods of a served model have the site's NetworkPolicies, which a measurement doesn't open.
        (False, False, True, ()),
    ],
)
def test_metrics_are_those_of_the_way_of_requests(
    *, is_direct: bool, is_copy: bool, network_policies: bool, expected: tuple[str, ...]
) -> None:
    components = metrics_access.components(is_direct=is_direct, is_copy=is_copy, network_policies=network_policies)
    assert components == expected


@pytest.mark.parametrize("component", BOTH)
def test_service_has_the_addresses_of_the_copys_pods_alone(component: str) -> None:
    service = metrics_access.service(SETTINGS, OWNER, "digits-bench", component)
    kubernetes_validate.validate(service, "1.31", strict=True)
    selector = service["spec"]["selector"]
    assert selector.items() <= names.labels("digits-bench", component).items()
    assert not selector.items() <= names.labels("digits", component).items()
    assert service["spec"]["clusterIP"] == "None"
    assert service["metadata"]["ownerReferences"][0]["uid"] == "j-1"


@pytest.mark.parametrize(("component", "port"), [(names.SERVER, 8002), (names.BALANCER, 9100)])
def test_only_the_client_reads_the_copys_metrics(component: str, port: int) -> None:
    policy = metrics_access.network_policy(SETTINGS, OWNER, "digits-bench", component)
    kubernetes_validate.validate(policy, "1.31", strict=True)
    spec = policy["spec"]
    assert spec["podSelector"]["matchLabels"].items() <= names.labels("digits-bench", component).items()
    # Without Egress, the pods keep the rules that they have.
    assert spec["policyTypes"] == ["Ingress"]
    (rule,) = spec["ingress"]
    assert [entry["port"] for entry in rule["ports"]] == [port]
    (peer,) = rule["from"]
    assert peer == {"podSelector": {"matchLabels": client_job.labels("digits")}}
    assert not peer["podSelector"]["matchLabels"].items() <= client_job.labels("other").items()


def test_client_may_leave_for_the_same_ports() -> None:
    both = client_job.network_policy(replace(SETTINGS, others=("other-bench",)), OWNER)["spec"]["egress"][0]["to"]
    owners = [peer["podSelector"]["matchLabels"]["serving.halcyon.dev/model-deployment"] for peer in both]
    assert owners == ["digits-bench", "other-bench"]
    opened = client_job.network_policy(SETTINGS, OWNER)["spec"]["egress"]
    assert [port["port"] for port in opened[0]["ports"]] == [8000, 8001, 8002, 9100]
    closed = client_job.network_policy(replace(SETTINGS, metrics=()), OWNER)["spec"]["egress"]
    assert [port["port"] for port in closed[0]["ports"]] == [8000, 8001]


def test_client_may_reach_the_prometheus_that_is_named() -> None:
    assert metrics_access.prometheus_port(SamplingOptions(prometheus="http://p.monitoring:9090/base")) == 9090
    assert metrics_access.prometheus_port(SamplingOptions(prometheus="https://p")) == 443
    assert metrics_access.prometheus_port(SamplingOptions(prometheus="http://p", no_sampling=True)) is None
    policy = client_job.network_policy(replace(SETTINGS, prometheus_port=9090), OWNER)
    kubernetes_validate.validate(policy, "1.31", strict=True)
    assert policy["spec"]["egress"][-1] == {"ports": [{"port": 9090, "protocol": "TCP"}]}


def test_addresses_are_names_of_the_services() -> None:
    sampling = metrics_access.addressed(SamplingOptions(), SETTINGS, "digits-bench")
    assert sampling.metrics_urls == ("http://digits-bench-server:8002/metrics",)
    assert sampling.balancer_metrics == ("http://digits-bench-balancer:9100/metrics",)
    assert sampling.pods == ""
    assert sampling.settings() is not None


def test_given_addresses_stay() -> None:
    options = SamplingOptions(metrics_urls=("http://10.0.0.7:8002/metrics",), prometheus="http://p:9090", pods="a-.*")
    sampling = metrics_access.addressed(options, SETTINGS, "digits-bench")
    assert (sampling.metrics_urls, sampling.pods) == (options.metrics_urls, "a-.*")
    assert metrics_access.addressed(SamplingOptions(no_sampling=True), SETTINGS, "digits-bench").metrics_urls == ()


def test_pods_for_prometheus_are_those_of_the_copy() -> None:
    settings = metrics_access.addressed(
        SamplingOptions(prometheus="http://p:9090"), SETTINGS, "digits-bench"
    ).settings()
    assert settings is not None
    assert (settings.namespace, settings.pods) == ("team", "digits-bench-[ab]-.+")


@pytest.mark.parametrize("measured", ["digits-bench", "m" * 46 + "-bench", "m" * 52])
def test_names_of_services_fit(measured: str) -> None:
    service_names = {metrics_access.service_name(measured, component) for component in BOTH}
    assert len(service_names) == 2
    assert max(map(len, service_names)) <= 63


def measured(*pods: str, notes: tuple[str, ...] = ()) -> BenchDocument:
    seen = Observations(
        span_s=1.0, servers=tuple(Readings(pod, (ServerSample(0.0), ServerSample(1.0))) for pod in pods)
    )
    figures = hardware.build(seen, wall_s=1.0).model_copy(update={"notes": notes})
    return bench_document().model_copy(update={"hardware": figures})


def pod(name: str, *addresses: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "status": {"podIPs": [{"ip": address} for address in addresses]}}


def test_replicas_have_the_names_of_their_pods() -> None:
    servers = [pod("digits-bench-a-x", "10.0.0.7", "fd00::7"), pod("digits-bench-a-y", "10.0.0.8")]
    document = measured("fd00::7", "10.0.0.8", "10.0.0.80", notes=("10.0.0.8 counts from 0 again", "10.0.0.80: lost"))
    named = metrics_access.with_pod_names(document, servers, "digits-bench").hardware
    assert named is not None
    assert [replica.pod for replica in named.replicas] == ["digits-bench-a-x", "digits-bench-a-y", "10.0.0.80"]
    assert named.notes == ("digits-bench-a-y counts from 0 again", "10.0.0.80: lost")


def test_only_replica_is_read_by_the_services_name() -> None:
    named = metrics_access.with_pod_names(
        measured("digits-bench-server:8002"), [pod("digits-bench-a-x", "10.0.0.7")], "digits-bench"
    ).hardware
    assert named is not None
    assert [replica.pod for replica in named.replicas] == ["digits-bench-a-x"]
