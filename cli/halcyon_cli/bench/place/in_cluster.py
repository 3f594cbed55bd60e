"""`halcyon bench NAME`: from the options to the document of a measurement in the cluster.

Out of scope: the pods (`admitted_pods`), their checks (`admission`), and their creation and removal (`beside_model`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from halcyon.kube import kinds
from halcyon_cli.bench.cold_start import start_watch
from halcyon_cli.bench.options.group import arguments
from halcyon_cli.bench.options.inputs import InputOptions
from halcyon_cli.bench.options.load import LoadOptions
from halcyon_cli.bench.options.sampling import SamplingOptions
from halcyon_cli.bench.options.server import ServerOptions
from halcyon_cli.bench.place import placed_document
from halcyon_cli.bench.place.admitted_pods import admitted
from halcyon_cli.bench.place.bench_request import BenchRequest, deadlines
from halcyon_cli.bench.place.beside_model import BesideModel
from halcyon_cli.bench.records import history, live_event
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube.object_writer import ObjectWriter

if TYPE_CHECKING:
    from halcyon_measure.breakdown.cold_start import Boundaries
    from halcyon_measure.results.document import BenchDocument

Json = Mapping[str, Any]


def run(
    cluster: ObjectWriter, request: BenchRequest, command: click.Command, progress: Callable[[str], None]
) -> tuple[BenchDocument, bytes | None]:
    """Measure a copy of a served model, or with --live the model itself.

    Return the document, and the content of requests.npz if it was small enough for the log.

    Raises:
        InputError: the measurement isn't possible.
        ClusterError, PlaceError: the measurement failed.
    """
    model = cluster.model(request.name)

    def client(
        server: ServerOptions, load: LoadOptions, inputs: InputOptions, sampling: SamplingOptions
    ) -> Sequence[str]:
        groups = (server, load, request.answer.for_client(), inputs, sampling)
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
        try:
            result = beside.run(network_policy=placement.network_policy)
        except BaseException as error:
            if request.place.live:
                live_event.record(cluster, model, began=False, ended=str(error) or "it was interrupted")
            raise
    document = placed_document.placed(
        cluster,
        result,
        measured,
        name=request.name,
        arguments=request.repeat(command),
        kind="live" if request.place.live else "trial" if request.place.trial else "copy",
    )
    if request.place.live:
        live_event.record(cluster, model, began=False, ended=document.place.ended if document.place else None)
    return _with_starts(document, starts), result.requests


def _with_starts(document: BenchDocument, starts: Sequence[Boundaries]) -> BenchDocument:
    from halcyon_measure.breakdown import cold_start  # noqa: PLC0415  # NumPy takes a while to import

    return document.model_copy(update={"cold_start": cold_start.build(starts)}) if starts else document


def remember(cluster: ObjectWriter, model: Json, document: BenchDocument) -> None:
    """Add the document to the model's history. If another command writes at the same time, the write is retried.

    Raises:
        ClusterError: the user may not write the ConfigMap, or a ConfigMap with its name exists that isn't a history.
    """
    name = history.name(str(model["metadata"]["name"]))
    for _ in range(5):
        stored = cluster.find(kinds.CONFIG_MAP, name)
        if stored is not None and history.HISTORY_LABEL not in (stored["metadata"].get("labels") or {}):
            raise ClusterError(f"ConfigMap {name} exists, and isn't a history of measurements; rename it, or delete it")
        config_map = history.extended(model, stored, document)
        if cluster.create(kinds.CONFIG_MAP, config_map, verb="create" if stored is None else "update") is not None:
            return
    raise ClusterError("other writers changed the history each time; the result is shown, but not kept")
