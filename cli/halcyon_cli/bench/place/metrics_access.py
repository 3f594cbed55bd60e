"""Access of the client to the metrics of the measured pods: headless Services, and a NetworkPolicy. Pure.

component   port   published metrics
server      8002   Triton: counters of the model, GPUs, energy
balancer    9100   its agent: time of requests with and without the balancer

The client has no token, so it can't list pods. It gets their addresses by resolving the name of a headless Service. The
Job owns the Services and the policy. The policy opens these ports of the copy only to its client. If the site uses
NetworkPolicies, the metrics of a served model can't be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from halcyon.render import names
from halcyon_cli.bench.options.sampling import SamplingOptions
from halcyon_cli.bench.place import client_job, copied_model
from halcyon_cli.bench.place.client_job import ClientSettings
from halcyon_cli.kube import fields

if TYPE_CHECKING:
    from halcyon_measure.results.document import BenchDocument

Json = Mapping[str, Any]

PORTS = {names.SERVER: names.METRICS_PORT, names.BALANCER: names.AGENT_PORT}
_MAX_NAME = 63


def components(*, is_direct: bool, is_copy: bool, network_policies: bool) -> tuple[str, ...]:
    """Return the components of a model whose metrics the client reads."""
    if network_policies and not is_copy:
        return ()
    return (names.SERVER,) if is_direct else (names.SERVER, names.BALANCER)


def service_name(measured: str, component: str) -> str:
    """Return the name of the headless Service of a component of a measured model."""
    base = client_job.job_name(measured.removesuffix(copied_model.SUFFIX))
    name = f"{base}-{component}"
    return name if len(name) <= _MAX_NAME else f"bench-{names.digest(measured)}-{component}"


def addresses(measured: str, component: str, read_components: Sequence[str]) -> tuple[str, ...]:
    """Return the URLs of a component's metrics; empty if the client doesn't read this component."""
    if component not in read_components:
        return ()
    return (f"http://{service_name(measured, component)}:{PORTS[component]}/metrics",)


def addressed(options: SamplingOptions, settings: ClientSettings, measured: str) -> SamplingOptions:
    """Return the options with the addresses of a model's metrics, and the pattern of its pod names for Prometheus.

    Values that the user has given stay unchanged.
    """
    if options.no_sampling:
        return options
    read_components = [component for name, component in settings.metrics if name == measured]
    return replace(
        options,
        metrics_urls=options.metrics_urls or addresses(measured, names.SERVER, read_components),
        balancer_metrics=options.balancer_metrics or addresses(measured, names.BALANCER, read_components),
        pods=options.pods or (f"{settings.namespace}/{measured}-[ab]-.+" if options.prometheus else ""),
    )


def service(settings: ClientSettings, owner: Json, measured: str, component: str) -> dict[str, Any]:
    """Return the headless Service of a component of a measured model.

    It includes pods that aren't ready, because their metrics are read as well.
    """
    body = client_job.owned("v1", "Service", settings, owner, name=service_name(measured, component))
    return body | {
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": names.selector(measured, component),
            "ports": [{"name": "metrics", "port": PORTS[component], "protocol": "TCP"}],
        }
    }


def network_policy(settings: ClientSettings, owner: Json, measured: str, component: str) -> dict[str, Any]:
    """Return the NetworkPolicy that lets the client read the metrics of a component of its copy."""
    name = service_name(measured, component)
    client = {"podSelector": {"matchLabels": client_job.labels(settings.model)}}
    return client_job.owned("networking.k8s.io/v1", "NetworkPolicy", settings, owner, name=name) | {
        "spec": {
            "podSelector": {"matchLabels": names.selector(measured, component)},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [client], "ports": [{"port": PORTS[component], "protocol": "TCP"}]}],
        }
    }


def prometheus_port(options: SamplingOptions) -> int | None:
    """Return the port of the Prometheus from which the client reads; None if it reads from none."""
    if options.no_sampling or not options.prometheus:
        return None
    parts = urlsplit(options.prometheus)
    return parts.port or (443 if parts.scheme == "https" else 80)


def with_pod_names(document: BenchDocument, servers: Sequence[Json], measured: str) -> BenchDocument:
    """Return the document with the pods' addresses replaced by their names."""
    if document.hardware is None:
        return document
    pod_names = {
        str(address.get("ip")): str(pod["metadata"]["name"])
        for pod in servers
        for address in fields.mappings(fields.mapping(pod.get("status")).get("podIPs"))
    }
    if len(servers) == 1:
        # With a single address, the client reads the metrics by the Service's name.
        pod_names[f"{service_name(measured, names.SERVER)}:{PORTS[names.SERVER]}"] = str(servers[0]["metadata"]["name"])
    replicas = tuple(
        replica.model_copy(update={"pod": pod_names.get(replica.pod, replica.pod)})
        for replica in document.hardware.replicas
    )
    notes = tuple(_renamed(note, pod_names) for note in document.hardware.notes)
    return document.model_copy(
        update={"hardware": document.hardware.model_copy(update={"replicas": replicas, "notes": notes})}
    )


def _renamed(note: str, pod_names: Mapping[str, str]) -> str:
    """Return a note with the address at its start replaced by the pod's name.

    An address is followed by a space or a colon.
    """
    for address, name in pod_names.items():
        tail = note.removeprefix(address)
        if tail != note and tail[:1] in {" ", ":"}:
            return name + tail
    return note
