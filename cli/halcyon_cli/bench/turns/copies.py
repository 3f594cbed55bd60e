"""Copies of several models that exist at the same time, and the Job of the client that measures them in turns.

The Job is named after the first model. It owns all copies, so they are removed together. Out of scope: the turns
themselves (`sides`), and measuring one model alone (`place.in_cluster`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from halcyon.render import names
from halcyon_cli.bench.options.group import arguments
from halcyon_cli.bench.options.load import LoadOptions
from halcyon_cli.bench.options.sampling import SamplingOptions
from halcyon_cli.bench.place import admission, admitted_pods, client_job, metrics_access, placed_document
from halcyon_cli.bench.place.bench_request import BenchRequest, deadlines
from halcyon_cli.bench.place.beside_model import BesideModel, Deadlines, PlacedResult
from halcyon_cli.bench.place.client_job import ClientSettings
from halcyon_cli.bench.place.copied_model import CopiedModel
from halcyon_cli.bench.place.site import BenchSite, read_site
from halcyon_cli.bench.readings import site_prices
from halcyon_cli.bench.turns.sides import Side
from halcyon_cli.errors import InputError
from halcyon_cli.kube import fields
from halcyon_cli.kube.object_writer import ObjectWriter

if TYPE_CHECKING:
    from halcyon_measure.results.document import BenchDocument

Json = Mapping[str, Any]

_ROUND_S, _END_S = 3.0, 120.0


@dataclass(frozen=True)
class CopiedSide:
    """One of the models that are measured in turns, with its copy."""

    request: BenchRequest
    model: Json
    load: LoadOptions
    copy: CopiedModel
    sampling: SamplingOptions


def run(
    cluster: ObjectWriter,
    requests: Sequence[BenchRequest],
    command: click.Command,
    progress: Callable[[str], None],
) -> list[BenchDocument] | None:
    """Measure copies of several models in turns, and return their documents in the order of the requests.

    With --against, there are two requests. The first is the baseline, and only the second has a document. If the models
    can't be measured in turns, a note with the reason is printed, and the result is None.

    Raises:
        InputError, MeasureError: the measurement isn't possible.
        ClusterError, PlaceError: the measurement failed.
    """
    if why := options_refusal(requests):
        _say(why)
        return None
    site = read_site(cluster, requests[0].name, image=requests[0].place.bench_image)
    sides = [_side(cluster, request, site) for request in requests]
    if why := sides_refusal(sides):
        _say(why)
        return None
    client = client_of(cluster.namespace, sides, site, command)
    planned = [
        admission.planned(admission.rendered(cluster, side.copy, side.request.name), side.copy, client)[:-1]
        for side in sides
    ]
    try:
        for number, side in enumerate(sides):
            admission.check_budget(
                cluster, side.copy, site.gpu_budget, besides=[other.copy for other in sides[:number]]
            )
        admission.check_pods(
            cluster, [*(pods for model_pods in planned for pods in model_pods), admission.client_pods(client)]
        )
    except InputError as error:
        _say(str(error))
        return None
    for side in sides:
        for note in (*side.copy.notes, *side.copy.traffic_notes):
            print(f"halcyon bench: {note}", file=sys.stderr)
    first, *others = (side.copy for side in sides)
    with BesideModel(cluster, client, first, _limits(requests), progress, others=others) as beside:
        result = beside.run(network_policy=site.network_policies)
    if requests[0].answer.against:
        document = _placed(cluster, result, sides[-1], command, result.document)
        return [_with_gpus(document, *(placed_document.gpu_product(cluster, _pods(result, side)) for side in sides))]
    documents = (result.document, *result.others)
    return [_placed(cluster, result, side, command, document) for side, document in zip(sides, documents, strict=True)]


def options_refusal(requests: Sequence[BenchRequest]) -> str:
    """Return the reason why the options don't allow a measurement in turns; empty if they do. Pure.

    Raises:
        MeasureError: a condition is invalid.
    """
    from halcyon_cli.bench import comparison_runs  # noqa: PLC0415  # NumPy takes a while to import

    place, answer = requests[0].place, requests[0].answer
    single_model_options = (
        ("--live", place.live),
        ("--trial", place.trial),
        ("--cold-start", place.cold_start),
        ("--sweep", answer.sweep),
        ("--teach", place.teach),
    )
    for option, is_set in single_model_options:
        if is_set:
            return f"{option} is for one model at a time"
    if any(condition.figure == "capacity" for condition in comparison_runs.conditions(answer)):
        return "--fail-if about the capacity needs a search of each"
    return ""


def sides_refusal(sides: Sequence[CopiedSide]) -> str:
    """Return the reason why one client can't measure these models; empty if it can. Pure.

    Raises:
        InputError: the models' objectives differ, so their results couldn't be compared.
    """
    objectives = {side.request.name: side.load.objective for side in sides}
    if len(set(objectives.values())) > 1 and not sides[0].request.load.has_load and not sides[0].request.answer.against:
        listed = ", ".join(
            f"{name} has {'none' if goal is None else f'{1000 * goal:g} ms'}" for name, goal in objectives.items()
        )
        if sides[0].request.answer.anyway:
            return f"their objectives differ: {listed}"
        raise InputError(
            f"a leaderboard is at one objective, and {listed}. Give all the same --objective, or add --anyway"
        )
    keys = {side.copy.api_keys for side in sides} - {""}
    return f"their API keys are in different Secrets: {', '.join(sorted(keys))}" if len(keys) > 1 else ""


def side_of(side: CopiedSide, settings: ClientSettings) -> Side:
    """Return the client's settings for one of the models. Pure."""
    read = metrics_access.addressed(side.sampling, settings, side.copy.name)
    return Side(
        name=side.request.name,
        url=side.request.url(side.copy.name),
        model=side.copy.model,
        metrics_urls=tuple(read.metrics_urls),
        balancer_metrics=tuple(read.balancer_metrics),
        pods=read.pods,
        price_per_hour=side.sampling.price_per_hour,
        has_keys=bool(side.copy.api_keys),
    )


def _say(why: str) -> None:
    print(f"halcyon bench: the models are measured one after the other, not in turns: {why}", file=sys.stderr)


def _side(cluster: ObjectWriter, request: BenchRequest, site: BenchSite) -> CopiedSide:
    model = cluster.model(request.name)
    admission.check_rights(cluster, needs_files=bool(request.inputs.inputs), copies=True)
    admission.check_free(cluster, request.name, copies=True)
    admitted_pods.check_stateless(cluster, request.name)
    copy = admitted_pods.copied(cluster, model, request, request.place.priority_class or site.priority_class)
    sampling = site_prices.priced(
        site_prices.of_site(request.sampling, site.carbon_intensity), model, admission.gpus_of(copy.document)
    )
    return CopiedSide(request, model, admitted_pods.with_objective(request.load, model), copy, sampling)


def client_of(namespace: str, sides: Sequence[CopiedSide], site: BenchSite, command: click.Command) -> ClientSettings:
    """Return the settings of the client that measures these models.

    Raises:
        InputError: a file of the options can't be read, or all files together are too large.
    """
    first, place = sides[0], sides[0].request.place
    load, inputs, files = client_job.packed(first.load, first.request.inputs)
    runtimes = [fields.mapping(fields.mapping(side.copy.document["spec"]).get("runtime")) for side in sides]
    secrets = [
        str(secret.get("name")) for runtime in runtimes for secret in fields.mappings(runtime.get("imagePullSecrets"))
    ]
    keys = next((side.copy.api_keys for side in sides if side.copy.api_keys), "")
    metrics = [admitted_pods.metrics_read(side.copy, side.sampling, site, is_copy=True) for side in sides]
    settings = ClientSettings(
        model=first.request.name,
        namespace=namespace,
        image=site.image,
        arguments=(),
        measured=first.copy.name,
        others=tuple(side.copy.name for side in sides[1:]),
        near=place.near or "zone",
        cpu=place.client_cpu,
        memory=place.client_memory,
        api_keys=keys,
        pull_secrets=tuple(dict.fromkeys([*secrets, *site.pull_secrets])),
        fixed_user_ids=site.fixed_user_ids,
        priority_class=place.priority_class or site.priority_class,
        tolerations=_tolerations(runtimes),
        files=files,
        claim=place.volume,
        metrics=tuple(pair for pairs in metrics for pair in pairs),
        prometheus_port=metrics_access.prometheus_port(first.sampling),
    )
    # Differences between the models are in the arguments of their sides.
    shared = replace(first.sampling, metrics_urls=(), balancer_metrics=(), pods="", price_per_hour=None)
    server = replace(first.request.server, url=None, model="")
    side_arguments = [argument for side in sides for argument in ("--side", side_of(side, settings).to_json())]
    client_answer = first.request.answer.for_turns()
    return replace(
        settings,
        arguments=(
            "bench",
            *arguments(command, server, load, client_answer, inputs, shared),
            *client_job.key_arguments(keys),
            *side_arguments,
            *("--wait", f"{place.start_timeout:.0f}s", "--to-log"),
        ),
    )


def _tolerations(runtimes: Sequence[Json]) -> list[Json]:
    """Return the tolerations of all models without duplicates, because the client may run on a node of any of them."""
    tolerations: list[Json] = []
    for runtime in runtimes:
        for toleration in fields.mappings(fields.mapping(runtime.get("placement")).get("tolerations")):
            if toleration not in tolerations:
                tolerations.append(toleration)
    return tolerations


def _limits(requests: Sequence[BenchRequest]) -> Deadlines:
    """Return the deadlines of one measurement multiplied by the number of turns."""
    limits = deadlines(requests[0])
    request = requests[0]
    turns = len(requests)
    if request.answer.against:
        turns *= request.answer.rounds
    if request.load.has_load or request.answer.against:
        round_s = request.measured_s + _ROUND_S + request.server.request_timeout
        return Deadlines(start_s=limits.start_s, run_s=turns * round_s + _END_S)
    return Deadlines(start_s=limits.start_s, run_s=turns * limits.run_s)


def _pods(result: PlacedResult, side: CopiedSide) -> tuple[Json, ...]:
    """Return the server pods of one model's copy."""
    labels = names.selector(side.copy.name, names.SERVER)
    return tuple(
        pod for pod in result.servers if labels.items() <= fields.mapping(pod["metadata"].get("labels")).items()
    )


def _with_gpus(document: BenchDocument, first: str | None, second: str | None) -> BenchDocument:
    """Return the document, with a note in its comparison if the two models had different GPUs.

    The client, which computes the comparison, can't read nodes.
    """
    if first == second or document.comparison is None:
        return document
    unlike = (*document.comparison.unlike, f"GPU: {first or 'not known'} and {second or 'not known'}")
    return document.model_copy(update={"comparison": document.comparison.model_copy(update={"unlike": unlike})})


def _placed(
    cluster: ObjectWriter, result: PlacedResult, side: CopiedSide, command: click.Command, document: bytes
) -> BenchDocument:
    """Return the document of one model, with the place and the pods of its copy."""
    return placed_document.placed(
        cluster,
        replace(result, document=document, servers=_pods(result, side)),
        side.copy,
        name=side.request.name,
        arguments=side.request.repeat(command),
        kind="copy",
    )
