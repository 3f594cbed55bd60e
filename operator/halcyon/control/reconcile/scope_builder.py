"""Builder of scopes, which are the inputs of reconciles, from the caches and from components such as the autoscaler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from halcyon.api.documents.balancer_plan import LowerClass
from halcyon.control.acceptance.accepted_specs import AcceptedSpecs
from halcyon.control.advice.selection import AdviceSelection
from halcyon.control.reconcile.gpu_reservations import GpuReservations
from halcyon.control.rollout.canary_analysis import CanaryAnalysis
from halcyon.control.state.cluster_state import ClusterState, unready_reason
from halcyon.control.state.external_hpas import hpa_name, hpas_of_deployment, hpas_of_model
from halcyon.control.state.measured_capacities import MeasuredCapacities
from halcyon.control.state.metrics_api_check import MetricsApiCheck
from halcyon.control.state.model_sources import ModelSources
from halcyon.control.state.scope import Measured, PublishedCosts, PublishedScaling, Scope, Signals
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.clock import Clock
from halcyon.kube.kinds import Key, Kind
from halcyon.render import names, revision
from halcyon.render.site import Site


class ScalingState(Protocol):
    """Source of the autoscaler's data about a model, for the status."""

    def reported(self, key: Key, /) -> Signals | None:
        """Return the agents' data about a model for the status, without scaling data; None if there is no report."""

    def published(self, key: Key, /) -> PublishedScaling:
        """Return the last published scaling decision of a model."""


class CostState(Protocol):
    """Source of the GPU costs of models, for the status."""

    def published(self, key: Key, /) -> PublishedCosts:
        """Return the last published GPU costs of a model."""


class AdviceState(Protocol):
    """Source of the advice on the settings of models."""

    def published(self, key: Key, /) -> AdviceSelection | None:
        """Return the selected advice for a model; None if none was selected yet."""


class BalancerErrors(Protocol):
    """Source of the errors that balancers report about themselves."""

    def errors(self, key: Key, now: float, /) -> tuple[str, ...]:
        """Return an error message for each balancer pod of a model that has one. `now` is monotonic, in seconds."""


@dataclass(frozen=True)
class ScopeBuilder:
    """Builder of scopes, which are the inputs of reconciles.

    It reads from memory only, except for the content of a ConfigMap source, which may have to be fetched.
    """

    caches: ClusterState
    sources: ModelSources
    accepted: AcceptedSpecs
    reservations: GpuReservations
    canaries: CanaryAnalysis
    scaling: ScalingState
    costs: CostState
    advice: AdviceState
    balancer_errors: BalancerErrors
    metrics_api: MetricsApiCheck
    site: Callable[[], Site]
    """Function that returns the current settings of the site. They change with the operator's certificate, and with the
    switch that stops scaling down."""
    clock: Clock
    measured: MeasuredCapacities
    lower_class: Callable[[Key], LowerClass | None] = lambda _: None
    """Function that returns how much capacity a model's balancers give to batch inference. Its result is None if that
    isn't known yet."""

    async def build(self, key: Key, *, uncached: Mapping[tuple[Kind, str], Object], rejected: str) -> Scope | None:
        """Return the scope of a ModelDeployment; None if it doesn't exist or is being deleted.

        `uncached` are fetched objects that the caches don't hold, because they lack Halcyon's label. `rejected` is the
        API server's message if it rejected a write in the last reconcile; else empty.

        Raises:
            ApiError, Unreachable: the content of a ConfigMap source could not be fetched.
        """
        caches, site = self.caches, self.site()
        resource = caches.resources.get(key)
        if resource is None or resource["metadata"].get("deletionTimestamp"):
            caches.own_writes.forget(key)
            self.measured.forget(key)
            return None
        uid = resource["metadata"]["uid"]
        records, ownerless_records = caches.owned_or_ownerless(kinds.CONTROLLER_REVISION, key, uid)
        config_maps, ownerless_maps = caches.owned_or_ownerless(kinds.CONFIG_MAP, key, uid)
        children = {**uncached, **caches.children_of(key)}
        for kind, objects in (
            (kinds.CONTROLLER_REVISION, (*records, *ownerless_records)),
            (kinds.CONFIG_MAP, (*config_maps, *ownerless_maps)),
        ):
            children |= {(kind, obj["metadata"]["name"]): obj for obj in objects}
        model_hpas = hpas_of_model(caches.hpas, key, uid)
        deployments = [*(names.server(key.name, slot) for slot in names.SLOTS), names.balancer(key.name)]
        deployment_hpas = {name: hpas_of_deployment(caches.hpas, key.namespace, name) for name in deployments}
        balancers = caches.pods.find(key.namespace, f"balancer/{key.name}")
        pods = tuple(caches.pods.find(key.namespace, key.name))
        return Scope(
            resource=resource,
            site=site,
            children=children,
            revisions=tuple(r for r in map(revision.read, records) if r is not None),
            config_maps=tuple(obj["metadata"]["name"] for obj in config_maps if obj.get("immutable")),
            pods=pods,
            balancers=len(balancers),
            balancer_failure=unready_reason(*balancers),
            source=await self.sources.state(key.namespace, resource),
            signals=self.scaling.reported(key),
            metrics_api=self.metrics_api.result,
            gateway_api=caches.routes.is_synced,
            other_routes=caches.routes.other_routes(key),
            external_hpa=hpa_name(model_hpas[0]) if model_hpas else "",
            deployment_hpas={name: hpa_name(hpas[0]) for name, hpas in deployment_hpas.items() if hpas},
            scaling=self.scaling.published(key),
            measured=Measured() if (spec := self.accepted.get(key)) is None else self.measured.of(key, spec),
            canary=self.canaries.result(key, caches.pods.find(key.namespace, key.name)),
            costs=self.costs.published(key),
            advice=self.advice.published(key),
            accepted=spec,
            balancer_errors=self.balancer_errors.errors(key, self.clock.monotonic()),
            now=self.clock.wall(),
            lower_class=self.lower_class(key),
            # Read this after the last await, because it must not change until the plan is made.
            gpus=self.reservations.gpus(key),
            rejected_write=rejected,
        )
