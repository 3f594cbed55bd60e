"""`halcyon bench NAME`: from the options to the measured document, with a copy of the model or with `--live`.

Out of scope: the pods (`admitted_pods`), what may refuse them (`admission`), and their life (`beside_model`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon.render import names
from halcyon_cli.bench.cold_start import start_watch
from halcyon_cli.bench.options.group import arguments
from halcyon_cli.bench.options.inputs import InputOptions
from halcyon_cli.bench.options.load import LoadOptions
from halcyon_cli.bench.options.server import ServerOptions
from halcyon_cli.bench.place import history, live_event
from halcyon_cli.bench.place.admitted_pods import admitted
from halcyon_cli.bench.place.bench_request import BenchRequest, deadlines
from halcyon_cli.bench.place.beside_model import BesideModel, PlacedResult
from halcyon_cli.bench.place.copied_model import CopiedModel
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube import fields
from halcyon_cli.kube.object_writer import ObjectWriter

if TYPE_CHECKING:
    from halcyon_measure.breakdown.cold_start import Boundaries
    from halcyon_measure.results.document import BenchDocument

Json = Mapping[str, Any]

_NODE = Kind("v1", "Node", "nodes", namespaced=False)


def run(
    cluster: ObjectWriter, request: BenchRequest, command: click.Command, progress: Callable[[str], None]
) -> tuple[BenchDocument, bytes | None]:
    """Measure a copy of a served model, or itself, and return the document, and requests.npz if the log could hold it.

    Raises:
        InputError: the measurement can't be made.
        ClusterError, PlaceError: it failed.
    """
    model = cluster.model(request.name)

    def client(server: ServerOptions, load: LoadOptions, inputs: InputOptions) -> Sequence[str]:
        groups = (server, load, request.answer.of_client(), inputs, request.sampling)
        return ("bench", *arguments(command, *groups))

    placement = admitted(cluster, model, request, client)
    measured = placement.measured
    for note in placement.notes:
        print(f"halcyon bench: {note}", file=sys.stderr)
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
        placement.client,
        placement.copy,
        deadlines(request),
        progress,
        trial=placement.trial,
        on_copy=on_copy if request.place.cold_start else None,
    ) as beside:
        if request.place.live:
            live_event.record(cluster, model, began=True)
        result = beside.run(network_policy=placement.network_policy)
    document = _placed(cluster, request, command, result, measured)
    if request.place.live:
        live_event.record(cluster, model, began=False, ended=document.place.ended if document.place else None)
    return _with_starts(document, starts), result.requests


def _with_starts(document: BenchDocument, starts: Sequence[Boundaries]) -> BenchDocument:
    from halcyon_measure.breakdown import cold_start  # noqa: PLC0415  # NumPy takes a while to import

    return document.model_copy(update={"cold_start": cold_start.build(starts)}) if starts else document


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
