"""Checks of the site's policy in a reconcile. Pure.

An admission policy in the API server enforces some of these rules, and can't check others. A stored spec can break an
enforced rule if it is older than the rule, or if the admission policy isn't installed. Such a spec is not accepted, and
the last accepted spec stays in force. The model keeps its replicas but can't grow beyond the policy.
"""

from __future__ import annotations

from halcyon.api.policy.python_rules import PolicySubject, queries, replicas, secret_names
from halcyon.api.policy.rules import most_replicas, refusals, warnings
from halcyon.api.resource_limit import ResourceLimit
from halcyon.api.spec import Spec
from halcyon.control.state.scope import Scope


def refused(view: Scope, spec: Spec) -> list[str]:
    """Return a sentence for each limit of the site policy that a spec exceeds."""
    return [
        *_own_secret(view, spec),
        *_queries(view, spec),
        *_metric(view, spec),
        *refusals(_asked(view, spec)),
        *_too_many_gpus(view, spec),
    ]


def advice(view: Scope, spec: Spec) -> list[str]:
    """Return a sentence for each limit that a spec exceeds if the site policy only warns about this limit."""
    return warnings(_asked(view, spec))


def most(view: Scope, spec: Spec) -> int | None:
    """Return the maximum number of replicas that the site policy allows for a spec now; None if it sets no limit."""
    found = [most_replicas(_asked(view, spec))]
    limit, gpus = _gpus_of_namespace(view), spec.runtime.gpus
    if limit is not None and gpus:
        found.append(ResourceLimit(limit, view.gpus.elsewhere).replicas(gpus))
    return min((n for n in found if n is not None), default=None)


def _asked(view: Scope, spec: Spec) -> PolicySubject:
    return PolicySubject(spec, view.key.namespace, view.site.policy)


def _own_secret(view: Scope, spec: Spec) -> list[str]:
    """Return a list with a sentence if the spec refers to the Secret with the operator's key; else an empty list.

    This Secret is in the operator's namespace.
    """
    namespace, _, name = view.site.own_secret.partition("/")
    if namespace != view.key.namespace or name not in secret_names(spec):
        return []
    return [f"the spec refers to the Secret {name}, which holds the operator's own key; use another Secret"]


def _queries(view: Scope, spec: Spec) -> list[str]:
    """Return sentences that reject the Prometheus queries of a canary. Return none if the queries are allowed.

    Queries are rejected if the site has no Prometheus, or if its policy doesn't allow them explicitly.
    """
    found, policy = queries(_asked(view, spec), ()), view.site.policy
    if not found:
        return []
    has = f"spec.rollout.canary.analysis.metrics has {', '.join(found)}"
    if not view.site.has_prometheus:
        no_server = (
            "No Prometheus is configured (chart value prometheus.url); remove spec.rollout.canary.analysis.metrics"
        )
        return [f"{has}. {no_server}"]
    if policy.canary.query_namespaces is not None or view.key.namespace in policy.exempt_namespaces:
        return []
    denied = (
        f"This site allows no Prometheus queries of namespace {view.key.namespace} "
        "(chart value sitePolicy.canary.queryNamespaces); remove spec.rollout.canary.analysis.metrics"
    )
    return [f"{has}. {denied}"]


def _metric(view: Scope, spec: Spec) -> list[str]:
    """Return a list with a sentence if the scaling target names a query that the site lacks; else an empty list."""
    metric = spec.scaling.targets.metric if spec.scaling else None
    known = view.site.queries
    if metric is None or metric.query in known:
        return []
    named = f"spec.scaling.targets.metric.query is {metric.query}"
    if not known:
        return [
            f"{named}, but this site defines no queries (chart value prometheus.queries); remove spec.scaling.targets.metric"
        ]
    theirs = ", ".join(known)
    return [
        f"{named}, but this site defines only {theirs} (chart value prometheus.queries); for example query: {known[0]}"
    ]


def _gpus_of_namespace(view: Scope) -> int | None:
    policy = view.site.policy
    return None if view.key.namespace in policy.exempt_namespaces else policy.limits.gpus_per_namespace


def _too_many_gpus(view: Scope, spec: Spec) -> list[str]:
    limit, wanted = _gpus_of_namespace(view), spec.runtime.gpus * replicas(spec)
    # A model keeps the GPUs that it already has, even if the limit was lowered.
    if limit is None or ResourceLimit(limit, view.gpus.elsewhere).allows(wanted, held=view.gpus.held):
        return []
    said = (
        f"spec.runtime.gpu.count times the maximum number of replicas is {wanted} GPUs, and the other "
        f"ModelDeployments of namespace {view.key.namespace} can use up to {view.gpus.elsewhere}. This site "
        f"allows at most {limit} per namespace. In this or another ModelDeployment, lower "
        "spec.scaling.maxReplicas (spec.replicas if scaling is not set), for example maxReplicas: 1"
    )
    return [said]
