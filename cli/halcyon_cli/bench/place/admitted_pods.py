"""The pods for measuring a ModelDeployment: their settings, and the checks that they must pass.

Out of scope: creating, watching and removing them (`beside_model`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from halcyon.api.types import duration_s
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon.render import names
from halcyon_cli.bench.options.inputs import InputOptions
from halcyon_cli.bench.options.load import LoadOptions
from halcyon_cli.bench.options.sampling import SamplingOptions
from halcyon_cli.bench.options.server import ServerOptions
from halcyon_cli.bench.place import admission, client_job, copied_model, guard, metrics_access, trial_pod
from halcyon_cli.bench.place.bench_request import BenchRequest
from halcyon_cli.bench.place.client_job import ClientSettings
from halcyon_cli.bench.place.copied_model import CopiedModel
from halcyon_cli.bench.place.site import BenchSite, read_site
from halcyon_cli.bench.place.trial_pod import TrialPod
from halcyon_cli.bench.readings import site_prices
from halcyon_cli.bench.records import teach
from halcyon_cli.errors import ClusterError, InputError
from halcyon_cli.kube import fields
from halcyon_cli.kube.object_writer import ObjectWriter
from halcyon_cli.rollout.revisions import past_revisions

Json = Mapping[str, Any]

ClientArguments = Callable[[ServerOptions, LoadOptions, InputOptions, SamplingOptions], Sequence[str]]
"""Function that returns the arguments of the client's command. Its parameters are options with the paths and URLs
inside the client's pod.
"""


@dataclass(frozen=True, kw_only=True)
class AdmittedPods:
    """Pods of a measurement that have passed all checks."""

    client: ClientSettings
    measured: CopiedModel
    """Model whose pods are measured: the copy, the served model itself (with --live), or the model whose server runs in
    the trial pod."""
    copy: CopiedModel | None
    """Copy to create; None if no copy is needed."""
    trial: TrialPod | None
    network_policy: bool
    """Whether the client needs its own NetworkPolicy."""
    notes: tuple[str, ...]


def admitted(cluster: ObjectWriter, model: Json, request: BenchRequest, command: ClientArguments) -> AdmittedPods:
    """Return the pods for a measurement of a model, after all checks.

    Raises:
        InputError: a check failed.
        ClusterError: the API server is unreachable.
    """
    place = request.place
    site = read_site(cluster, request.name, image=place.bench_image)
    load, inputs, files = client_job.packed(with_objective(request.load, model), request.inputs)
    request = replace(request, load=load, inputs=inputs)
    _check_request(cluster, request, needs_files=bool(files))
    priority_class = place.priority_class or site.priority_class
    measured = _served(model) if place.live else copied(cluster, model, request, priority_class)
    request = replace(request, sampling=_sampling(request, site, model, measured))
    client = _client(cluster.namespace, request, site, measured, files=files, priority_class=priority_class)
    client = replace(client, arguments=_arguments(request, model, measured, client, command))
    objects = [] if place.live else admission.rendered(cluster, measured, request.name)
    trial = trial_pod.trial_pod(objects, client, model=measured.model) if place.trial else None
    if place.live:
        pods = [admission.client_pods(client)]
    else:
        pods = admission.planned(objects, measured, client) if trial is None else [admission.trial_pods(trial)]
        admission.check_budget(cluster, measured, site.gpu_budget)
    admission.check_pods(cluster, pods)
    return AdmittedPods(
        client=client,
        measured=measured,
        copy=measured if _copies(request) else None,
        trial=trial,
        network_policy=site.network_policies,
        notes=(*measured.notes, *((trial_pod.NOTE,) if place.trial else measured.traffic_notes)),
    )


def _copies(request: BenchRequest) -> bool:
    """Return whether the measured model is a copy, which runs beside the served model."""
    return not request.place.live and not request.place.trial


def _sampling(request: BenchRequest, site: BenchSite, model: Json, measured: CopiedModel) -> SamplingOptions:
    """Return the options of sampling, with the site's carbon intensity and the model's price if none are given."""
    sampling = site_prices.of_site(request.sampling, site.carbon_intensity)
    return site_prices.priced(sampling, model, admission.gpus_of(measured.document))


def _check_request(cluster: ObjectWriter, request: BenchRequest, *, needs_files: bool) -> None:
    """Check the user's rights, that no other measurement of the model runs, and that the model can be measured.

    Raises:
        InputError: a check failed.
    """
    place, copies = request.place, _copies(request)
    admission.check_rights(cluster, needs_files=needs_files or place.trial, copies=copies)
    if place.teach:
        teach.check_rights(cluster)
    admission.check_free(cluster, request.name, copies=copies)
    check_stateless(cluster, request.name)


def _client(
    namespace: str,
    request: BenchRequest,
    site: BenchSite,
    measured: CopiedModel,
    *,
    files: Mapping[str, bytes],
    priority_class: str,
) -> ClientSettings:
    """Return the settings of the client's pod, without its arguments."""
    place = request.place
    # A trial pod's client reads the server's metrics on localhost, where they are by default.
    metrics = () if place.trial else metrics_read(measured, request.sampling, site, is_copy=_copies(request))
    runtime = fields.mapping(fields.mapping(measured.document["spec"]).get("runtime"))
    own_secrets = [str(secret.get("name")) for secret in fields.mappings(runtime.get("imagePullSecrets"))]
    return ClientSettings(
        model=request.name,
        namespace=namespace,
        image=site.image,
        arguments=(),
        measured=measured.name,
        near=place.near or "zone",
        cpu=place.client_cpu,
        memory=place.client_memory,
        api_keys="" if place.trial else measured.api_keys,
        pull_secrets=tuple(dict.fromkeys([*own_secrets, *site.pull_secrets])),
        fixed_user_ids=site.fixed_user_ids,
        priority_class=priority_class,
        tolerations=fields.mappings(fields.mapping(runtime.get("placement")).get("tolerations")),
        files=files,
        claim=place.volume,
        metrics=metrics,
        prometheus_port=metrics_access.prometheus_port(request.sampling),
    )


def _arguments(
    request: BenchRequest, model: Json, measured: CopiedModel, client: ClientSettings, command: ClientArguments
) -> tuple[str, ...]:
    """Return the arguments of the client's command."""
    place, sampling = request.place, request.sampling
    host = trial_pod.ADDRESS if place.trial else measured.name
    server = replace(request.server, url=request.url(host), model=measured.model)
    client_sampling = sampling if place.trial else metrics_access.addressed(sampling, client, measured.name)
    return (
        *command(server, request.load, request.inputs, client_sampling),
        *client_job.key_arguments(client.api_keys),
        *(_guard_arguments(model) if place.live else ()),
        *("--wait", f"{place.start_timeout:.0f}s", "--to-log"),
    )


def check_stateless(cluster: ObjectWriter, name: str) -> None:
    """Check that the model accepts requests that don't belong to sequences.

    Raises:
        InputError: the model needs sequences.
    """
    servers = _readable(
        cluster, kinds.POD, ",".join(f"{key}={value}" for key, value in names.selector(name, names.SERVER).items())
    )
    if copied_model.keeps_state(servers):
        raise InputError(
            f"{name} keeps state between requests (sequence_batching in its config.pbtxt), and the requests of a bench form no "
            f"sequences: the server would reject them. What can be measured: single requests, with halcyon infer {name}"
        )


def metrics_read(
    measured: CopiedModel, sampling: SamplingOptions, site: BenchSite, *, is_copy: bool
) -> tuple[tuple[str, str], ...]:
    """Return the components whose metrics the client reads, each as a pair of the model's name and the component."""
    if sampling.no_sampling:
        return ()
    components = metrics_access.components(
        is_direct=measured.is_direct, is_copy=is_copy, network_policies=site.network_policies
    )
    return tuple((measured.name, component) for component in components)


def copied(cluster: ObjectWriter, model: Json, request: BenchRequest, priority_class: str) -> CopiedModel:
    """Return the copy of a served model.

    Raises:
        InputError: the model can't be copied.
    """
    revisions = _readable(cluster, kinds.CONTROLLER_REVISION, f"{names.OWNER_LABEL}={request.name}")
    past = past_revisions(model, revisions)
    return copied_model.copied(model, past, replicas=request.place.replicas, priority_class=priority_class)


def _served(model: Json) -> CopiedModel:
    """Return the served model itself, if it may be put under load.

    Raises:
        InputError: the model may not be put under load.
    """
    copied_model.check_served(model)
    if why := guard.refusal(model):
        raise InputError(why)
    status, traffic = fields.mapping(model.get("status")), fields.mapping(fields.mapping(model["spec"]).get("traffic"))
    name = str(model["metadata"]["name"])
    if traffic.get("tls"):
        raise InputError(
            f"{name} has TLS, and the client doesn't know its host name; measure its copy, or its address with --url and --ca"
        )
    return CopiedModel(
        document=dict(model),
        revision=str(fields.mapping(status.get("revision")).get("current")),
        model=str(fields.mapping(status.get("model")).get("name") or name),
        is_direct=traffic.get("mode", "Balancer") != "Balancer",
        api_keys=str(fields.mapping(traffic.get("apiKeys")).get("secretName") or ""),
        notes=("clients share the served model with this measurement, which ends when they suffer",),
    )


def _latency_target(model: Json) -> str | None:
    targets = fields.mapping(fields.mapping(fields.mapping(model["spec"]).get("scaling")).get("targets"))
    return fields.text(targets.get("latency"))


def with_objective(load: LoadOptions, model: Json) -> LoadOptions:
    """Return the options, with the model's latency target as the objective if no objective is given."""
    latency = _latency_target(model)
    return load if load.objective is not None or not latency else replace(load, objective=duration_s(latency))


def _guard_arguments(model: Json) -> tuple[str, ...]:
    latency = _latency_target(model)
    return ("--guard", *(("--guard-latency", latency) if latency else ()))


def _readable(cluster: ObjectWriter, kind: Kind, selector: str) -> Sequence[Json]:
    try:
        return cluster.items(kind, selector=selector) or []
    except ClusterError:
        return []
