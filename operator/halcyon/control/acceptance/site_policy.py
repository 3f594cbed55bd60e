"""Checks of the site's policy in a reconcile. Pure.

An admission policy in the API server enforces some of these rules, but can't check the others. A stored spec can break
an enforced rule if it is older than the rule, or if the admission policy isn't installed. Such a spec is not accepted,
and the last accepted spec stays in force. The model keeps its replicas but can't grow beyond the policy.
"""

from __future__ import annotations

from halcyon.api.policy.python_rules import PolicySubject, queries, replicas, secret_names
from halcyon.api.policy.rules import most_replicas, refusals, warnings
from halcyon.api.resource_limit import ResourceLimit
from halcyon.api.spec import Spec
from halcyon.control.state.scope import Scope


def violations(scope: Scope, spec: Spec) -> list[str]:
    """Return an error message for each limit of the site policy that a spec exceeds."""
    return [
        *_own_secret(scope, spec),
        *_queries(scope, spec),
        *_metric(scope, spec),
        *refusals(_subject(scope, spec)),
        *_too_many_gpus(scope, spec),
    ]


def policy_warnings(scope: Scope, spec: Spec) -> list[str]:
    """Return a warning for each limit that a spec exceeds if the site policy only warns about this limit."""
    return warnings(_subject(scope, spec))


def max_replicas(scope: Scope, spec: Spec) -> int | None:
    """Return the maximum number of replicas that the site policy allows for a spec now; None if it sets no limit."""
    limits = [most_replicas(_subject(scope, spec))]
    limit, gpus = _gpus_of_namespace(scope), spec.runtime.gpus
    if limit is not None and gpus:
        limits.append(ResourceLimit(limit, scope.gpus.elsewhere).replicas(gpus))
    return min((n for n in limits if n is not None), default=None)


def _subject(scope: Scope, spec: Spec) -> PolicySubject:
    return PolicySubject(spec, scope.key.namespace, scope.site.policy)


def _own_secret(scope: Scope, spec: Spec) -> list[str]:
    """Return a list with an error message if the spec refers to the Secret with the operator's key, else [].

    This Secret is in the operator's namespace.
    """
    namespace, _, name = scope.site.own_secret.partition("/")
    if namespace != scope.key.namespace or name not in secret_names(spec):
        return []
    return [f"the spec refers to Secret {name}, which contains the operator's private key; use another Secret"]


def _queries(scope: Scope, spec: Spec) -> list[str]:
    """Return error messages about the Prometheus queries of a canary; none if the queries are allowed.

    Queries are rejected if the site has no Prometheus, or if its policy doesn't allow them explicitly.
    """
    used, policy = queries(_subject(scope, spec), ()), scope.site.policy
    if not used:
        return []
    subject = f"spec.rollout.canary.analysis.metrics has {', '.join(used)}"
    if not scope.site.has_prometheus:
        return [
            f"{subject}, but this site has no Prometheus (chart value prometheus.url is not set); remove the metrics"
        ]
    if policy.canary.query_namespaces is not None or scope.key.namespace in policy.exempt_namespaces:
        return []
    setting = "chart value sitePolicy.canary.queryNamespaces"
    return [f"{subject}, but namespace {scope.key.namespace} may not query Prometheus ({setting}); remove the metrics"]


def _metric(scope: Scope, spec: Spec) -> list[str]:
    """Return a list with an error message if the scaling target names a query that the site lacks, else []."""
    metric = spec.scaling.targets.metric if spec.scaling else None
    defined = scope.site.queries
    if metric is None or metric.query in defined:
        return []
    query = f"spec.scaling.targets.metric.query is {metric.query}"
    if not defined:
        return [
            f"{query}, but this site defines no queries (chart value prometheus.queries); remove spec.scaling.targets.metric"
        ]
    return [
        f"{query}, but this site defines only {', '.join(defined)} (chart value prometheus.queries); set it to one of these, for example {defined[0]}"
    ]


def _gpus_of_namespace(scope: Scope) -> int | None:
    policy = scope.site.policy
    return None if scope.key.namespace in policy.exempt_namespaces else policy.limits.gpus_per_namespace


def _too_many_gpus(scope: Scope, spec: Spec) -> list[str]:
    limit, requested = _gpus_of_namespace(scope), spec.runtime.gpus * replicas(spec)
    # A model keeps the GPUs that it already has, even if the limit was lowered.
    if limit is None or ResourceLimit(limit, scope.gpus.elsewhere).allows(requested, held=scope.gpus.granted):
        return []
    message = (
        f"this model can use up to {requested} GPUs (spec.runtime.gpu.count times the maximum number of replicas), and the other "
        f"models of namespace {scope.key.namespace} up to {scope.gpus.elsewhere} GPUs. The limit for a namespace is {limit} GPUs "
        "(chart value sitePolicy.limits.gpusPerNamespace). Lower spec.scaling.maxReplicas (spec.replicas if "
        "scaling is not set), for example maxReplicas: 1"
    )
    return [message]
