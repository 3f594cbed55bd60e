"""`--teach`: stores the measured capacity of one replica in the ConfigMap NAME-capacity, for the planner.

The operator decides whether it applies (`halcyon.control.state.measured_capacities`). Pure, except for `write`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from halcyon.api.documents.measured_capacity import KEY, MeasuredCapacity, MeasuredLine, encoded
from halcyon.api.types import API_VERSION, KIND
from halcyon.kube import kinds
from halcyon.render import names
from halcyon_cli.errors import ClusterError, InputError
from halcyon_cli.kube import fields
from halcyon_cli.kube.object_writer import ObjectWriter

if TYPE_CHECKING:
    from halcyon_measure.results.document import BenchDocument

Json = Mapping[str, Any]

_FEW_EXECUTIONS = 5
_CONTRADICTED = 2.0
"""Ratio of the rate predicted from batch times to the measured saturation rate. Above it, the batch times are not
used."""
_REACHED = 1.3
"""Maximum ratio of the saturation rate predicted for batches of the configured size to the measured one. If the ratio
is higher, the server doesn't seem to reach this batch size, and the largest executed size is stored instead."""
_ATTEMPTS = 5
_MIN_MS = 0.001


def measured(document: BenchDocument) -> MeasuredCapacity:
    """Return the capacity of one replica, from the measurement of a copy.

    Raises:
        InputError: the measurement can't be used; the message gives the reason.
    """
    place = document.place
    revision, image, product = (None, None, None) if place is None else (place.revision, place.image, place.gpu_product)
    return of_server(
        (line(document),),
        revision=revision,
        image=image,
        gpu_product=product,
        measured_at=document.made_at,
        source="bench",
    )


def of_server(
    lines: tuple[MeasuredLine, ...],
    *,
    revision: str | None,
    image: str | None,
    gpu_product: str | None,
    measured_at: str,
    source: Literal["bench", "tune"],
) -> MeasuredCapacity:
    """Return a measured capacity with these lines, and with the revision, image and GPU of the measured servers.

    Raises:
        InputError: the revision or the image is unknown, or there are several GPU products.
    """
    if revision is None or image is None:
        raise InputError("the revision and the image of the measured pods aren't known, so nothing is taught")
    if gpu_product is not None and "," in gpu_product:
        raise InputError(
            f"the copy ran on several GPU products, {gpu_product}, so nothing is taught; measure with --replicas 1"
        )
    return MeasuredCapacity(
        source=source,
        measured_at=measured_at,
        revision=revision,
        image=image,
        gpu_product=gpu_product,
        lines=lines,
    )


def line(document: BenchDocument) -> MeasuredLine:
    """Return the execution times of one replica's batches, or else of its concurrent requests.

    Raises:
        InputError: neither was measured, or the run isn't valid.
    """
    replicas = max((document.place.replicas if document.place is not None else None) or 1, 1)
    batches, capacity = document.batches, document.capacity
    instances = None if batches is None else batches.instances.value
    instances_per_replica = max(round((instances or 1) / replicas), 1)
    times = _times(document)
    if capacity is None or capacity.saturation.value is None or capacity.single.value is None:
        raise InputError(
            "neither one caller nor saturation was measured, so nothing is taught; --teach needs a search, without --rate"
        )
    saturation, single_ms = capacity.saturation.value / replicas, capacity.single.value
    rows = document.requests.rows / max(document.requests.answered, 1)
    if times and instances is not None:
        constant, per_row = _fitted(times)

        def predicted_rate(largest: int) -> float:
            return instances_per_replica * largest / max(rows, 1e-9) / ((constant + per_row * largest) / 1000)

        # In the last run, the largest batches may be rare. Without dynamic batching, the configured size is never reached.
        configured, largest_executed = batches.largest.value if batches is not None else None, max(times)
        largest = (
            round(configured)
            if configured and predicted_rate(round(configured)) <= _REACHED * saturation
            else largest_executed
        )
        if predicted_rate(largest) <= _CONTRADICTED * saturation:
            return MeasuredLine(
                instances=instances_per_replica,
                constant_milliseconds=round(constant, 4),
                per_row_milliseconds=round(per_row, 4),
                max_batch_size=max(largest, largest_executed),
            )
    if not document.run.valid:
        raise InputError(f"the run isn't valid ({'; '.join(document.run.invalid_because)}), so nothing is taught")
    at_once = max(round(saturation * single_ms / 1000), 1)
    return MeasuredLine(
        instances=instances_per_replica,
        constant_milliseconds=1000 * at_once / saturation,
        per_row_milliseconds=0,
        max_batch_size=1,
        at_once=at_once,
    )


def _times(document: BenchDocument) -> dict[int, tuple[int, float]]:
    """Return the number of executions and the mean time in milliseconds for each batch size in rows.

    The time includes input and output, as in the planner. Sizes with few executions are omitted, unless all sizes have
    few.
    """
    sizes = () if document.batches is None else document.batches.sizes
    times = {
        size.rows: (size.executions, sum(duration.value or 0.0 for duration in (size.input, size.model, size.output)))
        for size in sizes
        if size.model.value is not None and size.rows >= 1
    }
    return {rows: time for rows, time in times.items() if time[0] >= _FEW_EXECUTIONS} or times


def _fitted(times: Mapping[int, tuple[int, float]]) -> tuple[float, float]:
    """Return the constant time and the time per row, in milliseconds, fitted by least squares. Neither is negative.

    If only one batch size was executed, all of its time is constant.
    """
    weight = sum(count for count, _ in times.values())
    mean_rows = sum(rows * count for rows, (count, _) in times.items()) / weight
    mean_ms = sum(ms * count for count, ms in times.values()) / weight
    spread = sum(count * (rows - mean_rows) ** 2 for rows, (count, _) in times.items())
    common = sum(count * (rows - mean_rows) * (ms - mean_ms) for rows, (count, ms) in times.items())
    slope = min(max(common / spread if spread > 0 else 0.0, 0.0), mean_ms / mean_rows)
    return max(mean_ms - slope * mean_rows, _MIN_MS), slope


def config_map(model: Json, stored: Json | None, document: MeasuredCapacity) -> dict[str, Any]:
    """Return the ConfigMap with a model's measured capacity.

    It keeps the resource version of the stored ConfigMap, so that a concurrent write is detected.
    """
    meta = model["metadata"]
    name = str(meta["name"])
    metadata: dict[str, Any] = {
        "namespace": meta.get("namespace"),
        "name": names.measured_capacity(name),
        "labels": {names.OWNER_LABEL: name, names.MANAGER_LABEL: names.MANAGER},
        "ownerReferences": [{"apiVersion": API_VERSION, "kind": KIND, "name": name, "uid": meta["uid"]}],
    }
    if stored is not None:
        metadata["resourceVersion"] = stored["metadata"]["resourceVersion"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: encoded(document)}}


def check_rights(cluster: ObjectWriter) -> None:
    """Check that the user may write the ConfigMap with the measured capacity.

    Raises:
        InputError: a permission is missing.
    """
    missing = [verb for verb in ("get", "create", "update") if not cluster.may(verb, kinds.CONFIG_MAP)]
    if missing:
        raise InputError(
            f"--teach needs {', '.join(missing)} on configmaps in namespace {cluster.namespace}; leave it out, or see "
            "kubectl auth can-i"
        )


def write(cluster: ObjectWriter, model: Json, document: MeasuredCapacity) -> None:
    """Create or replace the ConfigMap. If another command writes it at the same time, retry.

    Raises:
        ClusterError: the user may not write the ConfigMap, or all attempts conflicted with other writes.
        InputError: a ConfigMap with this name exists but has other content.
    """
    name = names.measured_capacity(str(model["metadata"]["name"]))
    for _ in range(_ATTEMPTS):
        stored = cluster.find(kinds.CONFIG_MAP, name)
        if stored is not None and KEY not in fields.mapping(stored.get("data")) and not _is_of_model(stored, model):
            raise InputError(
                f"ConfigMap {name} exists in namespace {cluster.namespace}, and has no measured capacity, so nothing is taught; rename "
                "it, or delete it if you don't need it"
            )
        body = config_map(model, stored, document)
        if cluster.create(kinds.CONFIG_MAP, body, verb="create" if stored is None else "update") is not None:
            return
    raise ClusterError(f"other writers changed ConfigMap {name} each time; nothing is taught")


def _is_of_model(config_map: Json, model: Json) -> bool:
    labels = fields.mapping(fields.mapping(config_map.get("metadata")).get("labels"))
    return str(labels.get(names.OWNER_LABEL)) == str(model["metadata"]["name"])


def sentence(model: Json, document: MeasuredCapacity) -> str:
    """Return a sentence about the stored capacity that also says whether the planner uses it."""
    name = str(model["metadata"]["name"])
    descriptions = []
    for measured_line in document.lines:
        instances = f"{measured_line.instances} instance{'' if measured_line.instances == 1 else 's'}"
        times = f"{measured_line.constant_milliseconds:.3g} ms + {measured_line.per_row_milliseconds:.3g} ms per row, up to {measured_line.max_batch_size} rows"
        at_once = f"{measured_line.at_once} requests at once in {measured_line.constant_milliseconds:.3g} ms"
        descriptions.append(f"{times if measured_line.at_once is None else at_once}, {instances}")
    scaling = fields.mapping(fields.mapping(model.get("spec")).get("scaling"))
    used = "the planner begins with it" if scaling else f"{name} has no spec.scaling, so nothing uses it yet"
    if scaling.get("policy") == "Rules":
        used = f"spec.scaling.policy of {name} is Rules, which doesn't use it"
    return f"wrote ConfigMap {names.measured_capacity(name)} ({'; '.join(descriptions)}): {used}"
