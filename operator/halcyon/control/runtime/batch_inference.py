"""Construction of the controller of BatchInferences."""

from __future__ import annotations

from halcyon.batch.controller import BatchController
from halcyon.batch.job import BatchSite
from halcyon.control.runtime.settings import OperatorSettings
from halcyon.kube.client import Kube
from halcyon.kube.clock import Clock
from halcyon.kube.informers.informer import Informer


def build_batches(settings: OperatorSettings, client: Kube, clock: Clock, models: Informer) -> BatchController:
    """Build the controller, which follows ModelDeployments in `models` until runners can use them."""
    site = BatchSite(
        settings.bench_image,
        settings.bench_priority_class,
        settings.image_pull_secrets,
        settings.fixed_user_ids,
        settings.network,
    )
    made = BatchController(client, clock, site, models.get, settings.watch_namespaces)
    models.listeners.append(made.model_changed)
    return made
