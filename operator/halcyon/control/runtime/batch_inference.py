"""Construction of the controller of BatchInferences.

Other components read two values of each model from it: the capacity for batch inference in balancers, and the demand of
the batches.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from halcyon.api.documents.balancer_plan import LowerClass
from halcyon.api.spec import Spec
from halcyon.api.types import BATCH_KIND
from halcyon.batch.controller import BatchController
from halcyon.batch.job import BatchSite
from halcyon.batch.running_batch import RunningBatch
from halcyon.control.acceptance.accepted_specs import SpecsInForce
from halcyon.control.runtime.settings import OperatorSettings
from halcyon.kube.client import Kube, Object
from halcyon.kube.clock import Clock
from halcyon.kube.errors import NotFound
from halcyon.kube.event_recorder import EventRecorder
from halcyon.kube.informers.informer import Informer
from halcyon.kube.kinds import BATCH_INFERENCE, Key
from halcyon.scaling.policy.batch_demand import BatchDemand


def build_batches(
    settings: OperatorSettings,
    client: Kube,
    clock: Clock,
    models: Informer,
    specs: SpecsInForce,
    *,
    enqueue: Callable[[Key], object],
    events: EventRecorder,
) -> BatchController:
    """Build the controller of BatchInferences.

    The controller watches ModelDeployments in `models`, whose accepted specs are in `specs`, and starts a runner as
    soon as its model is usable. It calls `enqueue` with the key of a model if the model's class of lower-priority
    requests has changed. It records an event in `events` if a BatchInference has ended.
    """
    site = BatchSite(
        settings.bench_image,
        settings.bench_priority_class,
        settings.image_pull_secrets,
        settings.fixed_user_ids,
        settings.network,
        settings.downloads,
        settings.site_policy,
        f"{settings.namespace}/{settings.tls_secret}",
        settings.release,
        settings.cpu_limit,
    )
    classes: dict[Key, LowerClass] = {}

    def changed(model: Key) -> None:
        before, now = classes.pop(model, "None"), class_of(controller.running(model))
        if now != "None":
            classes[model] = now
        if now != before:
            enqueue(model)

    def model(key: Key) -> Object | None:
        return in_force(models.get(key), specs.get(key))

    record = partial(events.record, kind=BATCH_KIND)
    controller = BatchController(client, clock, site, model, settings.watch_namespaces, changed, record)
    models.listeners.append(controller.model_changed)
    return controller


def in_force(stored: Object | None, accepted: Spec | None) -> Object | None:
    """Return a ModelDeployment with its accepted spec, because the spec in the object may have been rejected.

    `spec.replicas` is that of the object. If no accepted spec is known, the object is returned unchanged.
    """
    if stored is None or accepted is None:
        return stored
    spec = stored.get("spec") or {}
    return {**stored, "spec": accepted.to_dict() | {name: spec[name] for name in ("replicas",) if name in spec}}


def reader(client: Kube) -> Callable[[str], Awaitable[Sequence[Object]]]:
    """Return a function that lists a namespace's BatchInferences. The list is empty if their CRD is missing."""

    async def read(namespace: str) -> Sequence[Object]:
        try:
            return (await client.list(BATCH_INFERENCE, namespace=namespace))[0]
        except NotFound:
            return ()

    return read


def class_of(batches: tuple[RunningBatch, ...]) -> LowerClass:
    """Return how much capacity balancers give to BatchInferences. It is `Gentle` only if all of them are gentle."""
    if not batches:
        return "None"
    return "Gentle" if all(batch.gentle for batch in batches) else "Fill"


def lower_class(batches: BatchController) -> Callable[[Key], LowerClass | None]:
    """Return a function that returns how much capacity a model's balancers give to batch inference.

    Its result is None until the BatchInferences have been read. Only the leader reads them.
    """
    return lambda model: class_of(batches.running(model)) if batches.batches.synced.is_set() else None


def demands(batches: BatchController) -> Callable[[Key], tuple[BatchDemand, ...] | None]:
    """Return a function that returns the demand of each running batch of a model; None until the batches are known."""
    return lambda model: tuple(map(demand, batches.running(model))) if batches.is_known else None


def demand(batch: RunningBatch) -> BatchDemand:
    """Return the demand of a running batch, for the autoscaler."""
    # Until the input is read, there is at least one row.
    rows = 1.0 if batch.rows_left is None else float(batch.rows_left)
    deadline = None if batch.rows_left is None else batch.deadline
    return BatchDemand(batch.name, rows, deadline, batch.max_replicas, batch.may_wake)
