"""The site's policy at reconcile time: the rules that the API server holds too, and what it can't see. Pure.

A spec that is refused here was stored before the limit existed, or past the API server: it is not accepted, and what was accepted last
keeps serving. It grows no more than the policy allows, and what it has is not taken from it.
"""

from __future__ import annotations

from halcyon.api.policy.python_rules import PolicySubject, replicas, secret_names
from halcyon.api.policy.rules import most_replicas, refusals, warnings
from halcyon.api.spec import Spec
from halcyon.control.state.scope import Scope


def refused(view: Scope, spec: Spec) -> list[str]:
    """A sentence for each limit that this spec doesn't keep to."""
    return [*_own_secret(view, spec), *refusals(_asked(view, spec)), *_too_many_gpus(view, spec)]


def advice(view: Scope, spec: Spec) -> list[str]:
    """A sentence for each limit that the site only warns of."""
    return warnings(_asked(view, spec))


def most(view: Scope, spec: Spec) -> int | None:
    """The highest count that this spec may have now; None where the policy knows none."""
    found = [most_replicas(_asked(view, spec))]
    limit, gpus = _gpus_of_namespace(view), spec.runtime.gpu.count
    if limit is not None and gpus:
        found.append(max(limit - view.gpus.elsewhere, 0) // gpus)
    return min((n for n in found if n is not None), default=None)


def _asked(view: Scope, spec: Spec) -> PolicySubject:
    return PolicySubject(spec, view.key.namespace, view.site.policy)


def _own_secret(view: Scope, spec: Spec) -> list[str]:
    """The operator's key, where models share its namespace."""
    namespace, _, name = view.site.own_secret.partition("/")
    if namespace != view.key.namespace or name not in secret_names(spec):
        return []
    return [f"spec names the Secret {name}, which is the operator's own key; name another Secret"]


def _gpus_of_namespace(view: Scope) -> int | None:
    policy = view.site.policy
    return None if view.key.namespace in policy.exempt_namespaces else policy.limits.gpus_per_namespace


def _too_many_gpus(view: Scope, spec: Spec) -> list[str]:
    limit, wanted = _gpus_of_namespace(view), spec.runtime.gpu.count * replicas(spec)
    # What it has already isn't taken from it, whatever has become of the limit.
    if limit is None or wanted <= view.gpus.held or wanted + view.gpus.elsewhere <= limit:
        return []
    said = (
        f"spec.runtime.gpu.count times the most replicas is {wanted} GPUs, the other ModelDeployments of namespace "
        f"{view.key.namespace} may have {view.gpus.elsewhere}, and this site allows a namespace {limit}; lower "
        "spec.scaling.maxReplicas (spec.replicas where there is no scaling), for example maxReplicas: 1, or that of another"
    )
    return [said]
