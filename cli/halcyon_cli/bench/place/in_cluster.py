"""`halcyon bench NAME`: from the options to the measured document, with a copy of the model or with `--live`.

Out of scope: the copy (`copied_model`), what may refuse it (`admission`), and its life (`beside_model`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import click

from halcyon.api.types import duration_s
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon.render import names
from halcyon_cli.bench.cold_start import start_watch
from halcyon_cli.bench.options.answer import AnswerOptions
from halcyon_cli.bench.options.group import arguments, repeatable
from halcyon_cli.bench.options.inputs import InputOptions
from halcyon_cli.bench.options.load import LoadOptions
from halcyon_cli.bench.options.place import PlaceOptions
from halcyon_cli.bench.options.sampling import SamplingOptions
from halcyon_cli.bench.options.server import ServerOptions
from halcyon_cli.bench.place import (
    admission,
    client_job,
    copied_model,
    guard,
    history,
    live_event,
    metrics_access,
    placed_document,
    teach,
)
from halcyon_cli.bench.place.beside_model import BesideModel, Deadlines
from halcyon_cli.bench.place.client_job import ClientSettings
from halcyon_cli.bench.place.copied_model import CopiedModel
from halcyon_cli.bench.place.site import BenchSite, read_site
from halcyon_cli.bench.readings import site_prices
from halcyon_cli.errors import ClusterError, InputError
from halcyon_cli.kube import fields
from halcyon_cli.kube.object_writer import ObjectWriter
from halcyon_cli.rollout.revisions import past_revisions

if TYPE_CHECKING:
    from halcyon_measure.breakdown.cold_start import Boundaries
    from halcyon_measure.results.document import BenchDocument

Json = Mapping[str, Any]

_WARM_UP_S, _END_S = 30.0, 60.0
_SEARCH_S = 480.0
"""Longest search for the capacity: six minutes of runs, with their starts and last answers."""
_NOT_HERE = ("url", "model", "api_key_file", "ca", "server_name", "cert", "key")
"""Options of a server that a ModelDeployment decides."""


@dataclass(frozen=True, kw_only=True)
class BenchRequest:
    """The options of `halcyon bench NAME`."""

    name: str
    server: ServerOptions
    load: LoadOptions
    answer: AnswerOptions = field(default_factory=AnswerOptions)
    inputs: InputOptions
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    place: PlaceOptions

    def check(self) -> BenchRequest:
        """Return this request if its options fit a ModelDeployment.

        Raises:
            InputError: an option doesn't.
        """
        self.place.check()
        self.answer.check()
        if self.place.live and self.answer.sweep:
            raise InputError("--live raises the rate in steps by itself; leave --sweep out, or measure a copy")
        if self.place.teach and (self.load.is_given or self.answer.sweep or self.answer.against):
            raise InputError(
                "--teach needs the search for the capacity, without --rate, --callers, --sweep or --against; for example "
                f"halcyon bench {self.name} --teach"
            )
        self.sampling.settings()
        self.sampling.prices()
        for option in _NOT_HERE:
            if getattr(self.server, option):
                raise InputError(
                    f"--{option.replace('_', '-')} is for a server, and {self.name} is a ModelDeployment; leave one of them out"
                )
        if self.server.api != "kserve":
            raise InputError(f"--api {self.server.api} is for a server; a ModelDeployment speaks KServe v2")
        kind = self.load.made_scenario().kind
        self.load.made_warm_up()
        if self.place.live and kind not in {"blocking", "sustained"}:
            raise InputError(
                f"--live raises the rate in steps, so the scenario can't be {kind}; give --rate, the highest rate, or none"
            )
        return self

    def url(self, measured: str) -> str:
        """Return the URL of a ModelDeployment's Service, in its namespace: gRPC for its encodings, else HTTP."""
        if self.server.encoding in {"raw", "typed"}:
            return f"grpc://{measured}:{names.GRPC_PORT}"
        return f"http://{measured}:{names.HTTP_PORT}"

    def repeat(self, command: click.Command) -> tuple[str, ...]:
        """Return the arguments that repeat the measurement."""
        return (
            self.name,
            *repeatable(command, self.server, self.load, self.answer, self.inputs, self.sampling, self.place),
        )


def run(
    cluster: ObjectWriter, request: BenchRequest, command: click.Command, progress: Callable[[str], None]
) -> tuple[BenchDocument, bytes | None]:
    """Measure a copy of a served model, or itself, and return the document, and requests.npz if the log could hold it.

    Raises:
        InputError: the measurement can't be made.
        ClusterError, PlaceError: it failed.
    """
    model = cluster.model(request.name)
    site = read_site(cluster, request.name, image=request.place.bench_image)
    priority_class = request.place.priority_class or site.priority_class
    load, inputs, files = client_job.packed(with_objective(request.load, model), request.inputs)
    admission.check_rights(cluster, needs_files=bool(files), copies=not request.place.live)
    if request.place.teach:
        teach.check_rights(cluster)
    admission.check_free(cluster, request.name, copies=not request.place.live)
    check_stateless(cluster, request.name)
    measured = _served(model) if request.place.live else copied(cluster, model, request, priority_class)
    for note in measured.notes:
        print(f"halcyon bench: {note}", file=sys.stderr)
    sent = replace(request.server, url=request.url(measured.name), model=measured.model)
    runtime = fields.mapping(fields.mapping(measured.document["spec"]).get("runtime"))
    own_secrets = [str(one.get("name")) for one in fields.mappings(runtime.get("imagePullSecrets"))]
    sampling = site_prices.priced(
        site_prices.of_site(request.sampling, site.carbon_intensity), model, admission.gpus_of(measured.document)
    )
    client = ClientSettings(
        model=request.name,
        namespace=cluster.namespace,
        image=site.image,
        arguments=(),
        measured=measured.name,
        near=request.place.near or "zone",
        cpu=request.place.client_cpu,
        memory=request.place.client_memory,
        api_keys=measured.api_keys,
        pull_secrets=tuple(dict.fromkeys([*own_secrets, *site.pull_secrets])),
        fixed_user_ids=site.fixed_user_ids,
        priority_class=priority_class,
        tolerations=fields.mappings(fields.mapping(runtime.get("placement")).get("tolerations")),
        files=files,
        claim=request.place.volume,
        metrics=metrics_read(measured, sampling, site, is_copy=not request.place.live),
        prometheus_port=metrics_access.prometheus_port(sampling),
    )
    client = replace(
        client,
        arguments=(
            "bench",
            *arguments(
                command,
                sent,
                load,
                request.answer.of_client(),
                inputs,
                metrics_access.addressed(sampling, client, measured.name),
            ),
            *client_job.key_arguments(measured.api_keys),
            *(_guard_arguments(model) if request.place.live else ()),
            *("--wait", f"{request.place.start_timeout:.0f}s", "--to-log"),
        ),
    )
    copy = None if request.place.live else measured
    pods = [admission.client_pods(client)] if copy is None else admission.planned(cluster, copy, client)
    if copy is not None:
        admission.check_budget(cluster, copy, site.gpu_budget)
    admission.check_pods(cluster, pods)
    starts: list[Boundaries] = []

    def on_copy(keep: Callable[[], None]) -> None:
        starts.extend(
            start_watch.watch(
                cluster,
                measured.name,
                model=measured.model,
                starts=request.place.cold_start,
                timeout_s=request.place.start_timeout,
                keep=keep,
            )
        )

    with BesideModel(
        cluster, client, copy, deadlines(request), progress, on_copy=on_copy if request.place.cold_start else None
    ) as beside:
        if copy is None:
            live_event.record(cluster, model, began=True)
        result = beside.run(network_policy=site.network_policies)
    document = placed_document.placed(
        cluster,
        result,
        measured,
        name=request.name,
        arguments=request.repeat(command),
        is_live=request.place.live,
    )
    if copy is None:
        live_event.record(cluster, model, began=False, ended=document.place.ended if document.place else None)
    return _with_starts(document, starts), result.requests


def check_stateless(cluster: ObjectWriter, name: str) -> None:
    """Check that the requests of a model need no sequences.

    Raises:
        InputError: they do.
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
    """Return the model with each component whose metrics the client reads."""
    if sampling.no_sampling:
        return ()
    found = metrics_access.components(
        is_direct=measured.is_direct, is_copy=is_copy, network_policies=site.network_policies
    )
    return tuple((measured.name, component) for component in found)


def _with_starts(document: BenchDocument, starts: Sequence[Boundaries]) -> BenchDocument:
    from halcyon_measure.breakdown import cold_start  # noqa: PLC0415  # NumPy takes a while to import

    return document.model_copy(update={"cold_start": cold_start.build(starts)}) if starts else document


def copied(cluster: ObjectWriter, model: Json, request: BenchRequest, priority_class: str) -> CopiedModel:
    """Return the copy of a served model.

    Raises:
        InputError: the model can't be copied.
    """
    revisions = _readable(cluster, kinds.CONTROLLER_REVISION, f"{names.OWNER_LABEL}={request.name}")
    past = past_revisions(model, revisions)
    return copied_model.copied(model, past, replicas=request.place.replicas, priority_class=priority_class)


def _served(model: Json) -> CopiedModel:
    """Return the served model itself, if it may be loaded.

    Raises:
        InputError: it may not.
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
    """Return the options with the model's latency target as objective, if none is given."""
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


def deadlines(request: BenchRequest) -> Deadlines:
    """Return after which times a measurement is given up."""
    scenario = request.load.made_scenario()
    measured = scenario.trace[-1] if scenario.kind == "trace" else scenario.duration_s
    warm_up = max(request.load.made_warm_up().limit_s, _WARM_UP_S)
    # At most 30 steps lead from half a request per second to the largest rate.
    steps = 30 * guard.STEP_S if request.place.live else 0.0
    if request.answer.sweep:
        steps = 4 * 3600.0
    elif not request.load.is_given and not request.place.live:
        steps = _SEARCH_S
    run_s = measured + warm_up + steps + request.server.request_timeout + _END_S
    return Deadlines(start_s=request.place.start_timeout, run_s=run_s)


def remember(cluster: ObjectWriter, model: Json, document: BenchDocument) -> None:
    """Add the document to the model's history. A write of another command in between is repeated.

    Raises:
        ClusterError: the user may not write the ConfigMap.
    """
    for _ in range(5):
        stored = cluster.find(kinds.CONFIG_MAP, history.name(str(model["metadata"]["name"])))
        made = history.extended(model, stored, document)
        if cluster.create(kinds.CONFIG_MAP, made, verb="create" if stored is None else "update") is not None:
            return
    raise ClusterError("other writers changed the history each time; the result is shown, but not kept")
