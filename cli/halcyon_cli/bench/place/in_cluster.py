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
from halcyon_cli.bench.place import admission, client_job, copied_model, guard, history, live_event, trial_pod
from halcyon_cli.bench.place.beside_model import BesideModel, Deadlines, PlacedResult
from halcyon_cli.bench.place.client_job import ClientSettings
from halcyon_cli.bench.place.copied_model import CopiedModel
from halcyon_cli.bench.place.site import read_site
from halcyon_cli.errors import ClusterError, InputError
from halcyon_cli.kube import fields
from halcyon_cli.kube.object_writer import ObjectWriter
from halcyon_cli.rollout.revisions import past_revisions

if TYPE_CHECKING:
    from halcyon_measure.breakdown.cold_start import Boundaries
    from halcyon_measure.results.document import BenchDocument

Json = Mapping[str, Any]

_NODE = Kind("v1", "Node", "nodes", namespaced=False)
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
        self.sampling.settings()
        self.sampling.prices()
        if self.server.shared_memory != "none" and not self.place.trial:
            raise InputError(
                f"--shared-memory {self.server.shared_memory} needs client and server in one pod; add --trial"
            )
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
        """Return the URL of a host in the model's namespace: gRPC for its encodings, else HTTP."""
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
    load, inputs, files = client_job.packed(_with_objective(request.load, model), request.inputs)
    copies = not request.place.live and not request.place.trial
    admission.check_rights(cluster, needs_files=bool(files) or request.place.trial, copies=copies)
    admission.check_free(cluster, request.name, copies=copies)
    servers = _readable(
        cluster,
        kinds.POD,
        ",".join(f"{key}={value}" for key, value in names.selector(request.name, names.SERVER).items()),
    )
    if copied_model.keeps_state(servers):
        raise InputError(
            f"{request.name} keeps state between requests (sequence_batching in its config.pbtxt), and the requests of a bench form no "
            f"sequences: the server would reject them. What can be measured: single requests, with halcyon infer {request.name}"
        )
    measured = _served(model) if request.place.live else _copied(cluster, model, request, priority_class)
    for note in (*measured.notes, *((trial_pod.NOTE,) if request.place.trial else measured.traffic_notes)):
        print(f"halcyon bench: {note}", file=sys.stderr)
    host = trial_pod.ADDRESS if request.place.trial else measured.name
    api_keys = "" if request.place.trial else measured.api_keys
    sent = replace(request.server, url=request.url(host), model=measured.model)
    runtime = fields.mapping(fields.mapping(measured.document["spec"]).get("runtime"))
    own_secrets = [str(one.get("name")) for one in fields.mappings(runtime.get("imagePullSecrets"))]
    client = ClientSettings(
        model=request.name,
        namespace=cluster.namespace,
        image=site.image,
        arguments=(
            "bench",
            *arguments(command, sent, load, request.answer.of_client(), inputs, request.sampling),
            *client_job.key_arguments(api_keys),
            *(_guard_arguments(model) if request.place.live else ()),
            *("--wait", f"{request.place.start_timeout:.0f}s", "--to-log"),
        ),
        measured=measured.name,
        near=request.place.near or "zone",
        cpu=request.place.client_cpu,
        memory=request.place.client_memory,
        api_keys=api_keys,
        pull_secrets=tuple(dict.fromkeys([*own_secrets, *site.pull_secrets])),
        fixed_user_ids=site.fixed_user_ids,
        priority_class=priority_class,
        tolerations=fields.mappings(fields.mapping(runtime.get("placement")).get("tolerations")),
        files=files,
        claim=request.place.volume,
    )
    objects = [] if request.place.live else admission.rendered(cluster, measured, request.name)
    trial = trial_pod.trial_pod(objects, client, model=measured.model) if request.place.trial else None
    if request.place.live:
        pods = [admission.client_pods(client)]
    else:
        pods = admission.planned(objects, measured, client) if trial is None else [admission.trial_pods(trial)]
        admission.check_budget(cluster, measured, site.gpu_budget)
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
        cluster,
        client,
        measured if copies else None,
        _deadlines(request),
        progress,
        trial=trial,
        on_copy=on_copy if request.place.cold_start else None,
    ) as beside:
        if request.place.live:
            live_event.record(cluster, model, began=True)
        result = beside.run(network_policy=site.network_policies)
    document = _placed(cluster, request, command, result, measured)
    if request.place.live:
        live_event.record(cluster, model, began=False, ended=document.place.ended if document.place else None)
    return _with_starts(document, starts), result.requests


def _with_starts(document: BenchDocument, starts: Sequence[Boundaries]) -> BenchDocument:
    from halcyon_measure.breakdown import cold_start  # noqa: PLC0415  # NumPy takes a while to import

    return document.model_copy(update={"cold_start": cold_start.build(starts)}) if starts else document


def _copied(cluster: ObjectWriter, model: Json, request: BenchRequest, priority_class: str) -> CopiedModel:
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


def _with_objective(load: LoadOptions, model: Json) -> LoadOptions:
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


def _deadlines(request: BenchRequest) -> Deadlines:
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


def _placed(
    cluster: ObjectWriter, request: BenchRequest, command: click.Command, result: PlacedResult, measured: CopiedModel
) -> BenchDocument:
    """Return the document with the place that it was measured in."""
    from halcyon_measure.results.document import BenchDocument  # noqa: PLC0415
    from halcyon_measure.results.place import Place  # noqa: PLC0415

    document = BenchDocument.model_validate_json(result.document)
    nodes = sorted({str(fields.mapping(pod.get("spec")).get("nodeName")) for pod in result.servers})
    image, image_id, limits = _server(result.servers)
    source = fields.mapping(fields.mapping(measured.document["spec"]["model"]).get("source"))
    place = Place(
        kind="live" if request.place.live else "trial" if request.place.trial else "copy",
        namespace=cluster.namespace,
        name=request.name,
        measured=request.name if request.place.trial else measured.name,
        revision=measured.revision,
        source=_source(source),
        image=image,
        image_id=image_id,
        node=",".join(nodes) or None,
        gpu_product=_gpu_product(cluster, nodes) if limits is not None and limits.gpu else None,
        limits=limits,
        routing="direct" if measured.is_direct or request.place.trial else "balancer",
        replicas=len(result.servers),
        client_node=fields.text(fields.mapping(result.client.get("spec")).get("nodeName")),
        client_limits=_limits_of(fields.mappings(fields.mapping(result.client.get("spec")).get("containers"))),
        arguments=request.repeat(command),
        ended=None if document.place is None else document.place.ended,
    )
    return document.model_copy(update={"place": place})


def _server(servers: Sequence[Json]) -> tuple[str | None, str | None, Any]:
    """Return image, image with digest, and limits of the container with Triton in the first pod."""
    if not servers:
        return None, None, None
    spec, status = (fields.mapping(servers[0].get(part)) for part in ("spec", "status"))
    # In a trial pod, it is a sidecar.
    found = [
        one
        for part in ("containers", "initContainers")
        for one in fields.mappings(spec.get(part))
        if one.get("name") == names.TRITON
    ]
    statuses = [
        one for part in ("containerStatuses", "initContainerStatuses") for one in fields.mappings(status.get(part))
    ]
    ids = [str(one.get("imageID")) for one in statuses if one.get("name") == names.TRITON and one.get("imageID")]
    return str(found[0].get("image")) if found else None, ids[0] if ids else None, _limits_of(found)


def _limits_of(containers: Sequence[Json]) -> Any:
    from halcyon_measure.results.place import ContainerLimits  # noqa: PLC0415

    if not containers:
        return None
    limits = fields.mapping(fields.mapping(containers[0].get("resources")).get("limits"))
    gpus = [f"{amount} {name}" for name, amount in limits.items() if "/" in str(name)]
    return ContainerLimits(
        cpu=str(limits.get("cpu") or ""), memory=str(limits.get("memory") or ""), gpu=", ".join(gpus)
    )


def _source(source: Json) -> str | None:
    for kind, key in (
        ("uri", ""),
        ("image", "reference"),
        ("persistentVolumeClaim", "claimName"),
        ("configMap", "name"),
    ):
        value = source.get(kind)
        if value is not None:
            return f"{kind} {fields.mapping(value).get(key) if key else value}"
    return None


def _gpu_product(cluster: ObjectWriter, nodes: Sequence[str]) -> str | None:
    found = set()
    for name in nodes:
        try:
            node = cluster.find(_NODE, name)
        except ClusterError:
            return None
        found.add(
            str(
                fields.mapping(fields.mapping((node or {}).get("metadata")).get("labels")).get("nvidia.com/gpu.product")
                or ""
            )
        )
    return ",".join(sorted(filter(None, found))) or None


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
