"""Document of a measurement in the cluster, with its place and the resource usage of the measured pods."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from halcyon.kube.kinds import Kind
from halcyon.render import names
from halcyon_cli.bench.place import metrics_access
from halcyon_cli.bench.place.beside_model import PlacedResult
from halcyon_cli.bench.place.copied_model import CopiedModel
from halcyon_cli.bench.readings import pod_usage
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube import fields
from halcyon_cli.kube.object_writer import ObjectWriter

if TYPE_CHECKING:
    from halcyon_measure.results.document import BenchDocument

Json = Mapping[str, Any]

_NODE = Kind("v1", "Node", "nodes", namespaced=False)


def placed(
    cluster: ObjectWriter,
    result: PlacedResult,
    measured: CopiedModel,
    *,
    name: str,
    arguments: tuple[str, ...],
    kind: Literal["copy", "live", "trial"],
) -> BenchDocument:
    """Return the document with the place of the measurement.

    Raises:
        MeasureError: the client's result can't be read.
    """
    from halcyon_measure.results.place import Place  # noqa: PLC0415

    document = client_document(result.document)
    nodes = sorted({str(fields.mapping(pod.get("spec")).get("nodeName")) for pod in result.servers})
    image, image_id, limits = _server(result.servers)
    source = fields.mapping(fields.mapping(measured.document["spec"]["model"]).get("source"))
    place = Place(
        kind=kind,
        namespace=cluster.namespace,
        name=name,
        measured=name if kind == "trial" else measured.name,
        revision=measured.revision,
        source=_source(source),
        image=image,
        image_id=image_id,
        node=",".join(nodes) or None,
        gpu_product=gpu_product(cluster, result.servers),
        limits=limits,
        routing="direct" if measured.is_direct or kind == "trial" else "balancer",
        # The autoscaler may have added pods to a served model since.
        replicas=(result.ready if kind == "live" else 0) or len(result.servers),
        client_node=fields.text(fields.mapping(result.client.get("spec")).get("nodeName")),
        client_limits=_limits_of(fields.mappings(fields.mapping(result.client.get("spec")).get("containers"))),
        arguments=arguments,
        ended=None if document.place is None else document.place.ended,
    )
    document = pod_usage.added(
        document.model_copy(update={"place": place}), result.usage, result.servers, measured.name
    )
    return metrics_access.with_pod_names(document, result.servers, measured.name)


def client_document(content: bytes) -> BenchDocument:
    """Return the result of a client, whose image may have another version than this command.

    Fields that this version doesn't have are left out.

    Raises:
        MeasureError: a field is missing or invalid.
    """
    from pydantic import ValidationError  # noqa: PLC0415

    from halcyon_measure.results import document_file  # noqa: PLC0415
    from halcyon_measure.results.document import BenchDocument  # noqa: PLC0415

    data = json.loads(content)
    try:
        return BenchDocument.model_validate(data)
    except ValidationError as error:
        unknown = [entry["loc"] for entry in error.errors(include_url=False) if entry["type"] == "extra_forbidden"]
    for *path, field in unknown:
        part = data
        for key in path:
            part = part[key]
        del part[field]
    return document_file.parse(data, "the result of the client, whose image has another version than this command")


def _server(servers: Sequence[Json]) -> tuple[str | None, str | None, Any]:
    """Return the image, the image ID with its digest, and the resource limits of Triton's container in a pod."""
    if not servers:
        return None, None, None
    spec, status = (fields.mapping(servers[0].get(part)) for part in ("spec", "status"))
    # In a trial pod, Triton's container is a sidecar.
    containers = [
        container
        for part in ("containers", "initContainers")
        for container in fields.mappings(spec.get(part))
        if container.get("name") == names.TRITON
    ]
    statuses = [
        entry for part in ("containerStatuses", "initContainerStatuses") for entry in fields.mappings(status.get(part))
    ]
    ids = [
        str(entry.get("imageID")) for entry in statuses if entry.get("name") == names.TRITON and entry.get("imageID")
    ]
    return str(containers[0].get("image")) if containers else None, ids[0] if ids else None, _limits_of(containers)


def server_image(servers: Sequence[Json]) -> str | None:
    """Return the image of Triton's container in the first pod; None if it is unknown."""
    return _server(servers)[0]


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


def gpu_product(cluster: ObjectWriter, servers: Sequence[Json]) -> str | None:
    """Return the GPU products in the labels of the pods' nodes; None without GPUs or access to the nodes."""
    limits = _server(servers)[2]
    if limits is None or not limits.gpu:
        return None
    nodes = {str(fields.mapping(pod.get("spec")).get("nodeName")) for pod in servers}
    products = set()
    for name in nodes:
        try:
            node = cluster.find(_NODE, name)
        except ClusterError:
            return None
        products.add(
            str(
                fields.mapping(fields.mapping((node or {}).get("metadata")).get("labels")).get("nvidia.com/gpu.product")
                or ""
            )
        )
    return ",".join(sorted(filter(None, products))) or None
