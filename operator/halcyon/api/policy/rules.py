"""Rules of the site policy, in Python for the check during a reconcile.

A rule returns the values in a spec that its limit does not allow, as texts; if there are none, the spec complies. Out of scope: the same
rules in CEL for the API server (generators/policy_expressions.py), and limits on sums over several objects, which only the operator can
check (`halcyon.control.reconcile.gpu_reservations`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, Final, Literal

from halcyon.api.policy import python_rules as findings
from halcyon.api.policy.python_rules import PolicySubject
from halcyon.api.policy.site_policy import ANYTHING, SitePolicy
from halcyon.api.resource_limit import ResourceLimit
from halcyon.api.types import ApiModel


@dataclass(frozen=True)
class PolicyRule:
    """Rule of the site policy that checks one limit."""

    value: str
    """Path of the limit in the policy, as in the chart's values."""
    find: Callable[[PolicySubject, Any], list[str]]
    """Function that returns the list of values that the limit does not allow, given the spec to check and the limit."""
    message: str
    """Template of the message for a violation. `{found}` stands for the values that are not allowed, and `{limit}` for
    the limit."""
    action: Literal["Deny", "Warn"] = "Deny"
    unset: Any = None
    """Limit that the operator applies if the site sets none. The admission policy has no such fallback. If it is None,
    there is no such limit."""

    def limit(self, policy: SitePolicy) -> Any:  # the limit's own type
        """Return the limit in the site policy; None if the policy has none."""
        return at(policy, self.value)

    def violation(self, subject: PolicySubject) -> str:
        """Return the message for the violation of the rule by a spec; empty if the spec complies."""
        limit = self.unset if (configured := self.limit(subject.policy)) is None else configured
        if limit is None or subject.namespace in subject.policy.exempt_namespaces:
            return ""
        violations = self.find(subject, limit)
        return self.message.format(found=", ".join(violations), limit=shown(limit)) if violations else ""


def at(policy: SitePolicy, path: str) -> Any:  # the value's own type
    """Return the value in the site policy at a path of camelCase names."""
    return _getter(path)(policy)


@cache
def _getter(path: str) -> attrgetter[Any]:
    node: Any = ANYTHING
    names: list[str] = []
    for alias in path.split("."):
        fields = type(node).model_fields if isinstance(node, ApiModel) else {}
        names.append(next(name for name, info in fields.items() if (info.alias or name) == alias))
        node = getattr(node, names[-1])
    return attrgetter(".".join(names))


def shown(limit: Any) -> str:
    """Return the limit as text for messages."""
    return (", ".join(limit) or "none") if isinstance(limit, tuple) else str(limit)


def refusals(subject: PolicySubject) -> list[str]:
    """Return a message for each violated rule that causes a rejection of the spec."""
    return [message for rule in RULES if rule.action == "Deny" and (message := rule.violation(subject))]


def warnings(subject: PolicySubject) -> list[str]:
    """Return a message for each violated rule that causes only a warning."""
    return [message for rule in RULES if rule.action == "Warn" and (message := rule.violation(subject))]


def most_replicas(subject: PolicySubject) -> int | None:
    """Return the maximum replicas that the policy allows for this model; None if there is no limit."""
    limits, gpus = subject.policy.limits, subject.spec.runtime.gpus
    if subject.namespace in subject.policy.exempt_namespaces:
        return None
    maxima = [limits.replicas]
    if limits.gpus_per_model is not None and gpus:
        maxima.append(ResourceLimit(limits.gpus_per_model).replicas(gpus))
    return min((maximum for maximum in maxima if maximum is not None), default=None)


_PULLED = "remove it to use the site's default image"

RULES: Final = (
    PolicyRule(
        "images.registries",
        lambda subject, limit: findings.foreign(subject.image, limit),
        "spec.runtime.image is {found}, which this site does not allow (allowed registries: {limit}); " + _PULLED,
    ),
    PolicyRule(
        "images.pinned",
        findings.unpinned,
        "spec.runtime.image or spec.model.source.image.reference is {found}, but this site requires "
        "image references by {limit} (a tag other than latest, or a digest); for example "
        "tritonserver@sha256: and 64 hexadecimal digits",
    ),
    PolicyRule(
        "triton.refuseBelow",
        findings.old_release,
        "spec.runtime.image is {found}, but this site requires Triton {limit} or newer, with a tag "
        "such as 26.07-py3 or a digest listed in sitePolicy.triton.digests; " + _PULLED,
    ),
    PolicyRule(
        "triton.warnBelow",
        findings.old_release,
        "spec.runtime.image is {found}, but this site recommends Triton {limit} or newer, with a tag "
        "such as 26.07-py3 or a digest listed in sitePolicy.triton.digests; " + _PULLED,
        action="Warn",
    ),
    PolicyRule(
        "models.sources",
        findings.sources,
        "spec.model.source is of kind {found}, which this site does not allow (allowed: {limit}); "
        "for example source: {{persistentVolumeClaim: {{claimName: models}}}}",
    ),
    PolicyRule(
        "models.urls",
        findings.urls,
        "spec.model.source.uri is {found}, which this site does not allow (allowed prefixes: "
        "{limit}; {{namespace}} is the ModelDeployment's namespace); move the model there",
    ),
    PolicyRule(
        "models.endpoints",
        findings.endpoints,
        "spec.model.source.endpoint or credentials.identity.endpoint is {found}, which this site does not allow "
        "(allowed: {limit}); remove it to use the service of AWS, Azure, Google or Hugging Face",
    ),
    PolicyRule(
        "models.images",
        lambda subject, limit: findings.foreign(subject.model_image, limit),
        "spec.model.source.image.reference is {found}, which this site does not allow (allowed "
        "registries: {limit}); push the image there",
    ),
    PolicyRule(
        "models.backends",
        lambda subject, limit: findings.outside(subject.spec.model.backend, limit),
        "spec.model.backend is {found}, which this site does not allow (allowed: {limit}); convert "
        "the model, for example to ONNX (backend: onnxruntime)",
    ),
    PolicyRule(
        "models.secrets",
        findings.secrets,
        "spec refers to the Secrets {found}, which this site does not allow (allowed: {limit}); rename the Secret",
    ),
    PolicyRule(
        "pods.priorityClasses",
        lambda subject, limit: findings.outside(subject.spec.runtime.placement.priority_class_name, limit),
        "spec.runtime.placement.priorityClassName is {found}, which this site does not allow "
        "(allowed: {limit}); remove it to use the cluster's default",
    ),
    PolicyRule(
        "pods.runtimeClasses",
        lambda subject, limit: findings.outside(subject.spec.runtime.placement.runtime_class_name, limit),
        "spec.runtime.placement.runtimeClassName is {found}, which this site does not allow "
        "(allowed: {limit}); remove it to use the nodes' default",
    ),
    PolicyRule(
        "pods.nodeSelectors",
        findings.selectors,
        "spec.runtime.placement has the node labels {found} in nodeSelector or affinity.nodeAffinity, which this site does "
        "not allow (allowed: {limit}); remove the others",
    ),
    PolicyRule(
        "pods.tolerations",
        findings.tolerations,
        "spec.runtime.placement.tolerations has {found}, which this site does not allow (allowed: "
        "{limit}); remove the others",
    ),
    PolicyRule(
        "pods.resourceClaimTemplates",
        lambda subject, limit: findings.outside(
            None if subject.spec.runtime.gpu is None else subject.spec.runtime.gpu.resource_claim_template_name, limit
        ),
        "spec.runtime.gpu.resourceClaimTemplateName is {found}, which this site does not allow "
        "(allowed: {limit}); use one of these, or a resource, for example gpu: {{count: 1}}",
    ),
    PolicyRule(
        "pods.serviceAccounts",
        lambda subject, limit: findings.outside(subject.spec.runtime.service_account_name, (*limit, "default")),
        "spec.runtime.serviceAccountName is {found}, which this site does not allow (allowed: {limit}; chart value "
        "sitePolicy.pods.serviceAccounts); remove it to use the namespace's default",
        unset=(),
    ),
    PolicyRule(
        "pods.env",
        findings.environment,
        "spec.runtime.env or envFrom sets {found}, which this site does not allow (allowed: {limit}); rename the variable, "
        "or give the entry of envFrom an allowed prefix",
    ),
    PolicyRule(
        "pods.configMaps",
        findings.config_maps,
        "spec.runtime.env or envFrom refers to the ConfigMaps {found}, which this site does not allow (allowed: {limit}); "
        "rename the ConfigMap",
    ),
    PolicyRule(
        "limits.replicas",
        lambda subject, limit: findings.more(findings.replicas(subject.spec), limit),
        "spec.scaling.maxReplicas (spec.replicas if scaling is not set) is {found}, but this site "
        "allows at most {limit}; for example maxReplicas: {limit}",
    ),
    PolicyRule(
        "limits.gpusPerModel",
        lambda subject, limit: findings.more(subject.spec.runtime.gpus * findings.replicas(subject.spec), limit),
        "spec.runtime.gpu.count times the maximum number of replicas is {found} GPUs, but this site "
        "allows at most {limit} for one model; lower spec.scaling.maxReplicas (spec.replicas if scaling is not "
        "set) or spec.runtime.gpu.count, for example maxReplicas: 1",
    ),
    PolicyRule(
        "traffic.serviceTypes",
        lambda subject, limit: findings.outside(subject.spec.traffic.service.type, limit),
        "spec.traffic.service.type is {found}, which this site does not allow (allowed: {limit}); "
        "for example type: ClusterIP",
    ),
    PolicyRule(
        "traffic.gateways",
        findings.gateways,
        "spec.traffic.gateway is {found}, which this site does not allow (allowed: {limit}; "
        "{{namespace}} is the ModelDeployment's namespace); use one of these",
    ),
    PolicyRule(
        "traffic.hostnames",
        findings.hostnames,
        "spec.traffic.gateway has the hostnames {found} (* if none is set), which this site does not "
        "allow (allowed: {limit}; {{namespace}} is the ModelDeployment's namespace); set allowed "
        "ones in http.hostnames and grpc.hostnames",
    ),
    PolicyRule(
        "canary.queryNamespaces",
        findings.queries,
        "spec.rollout.canary.analysis.metrics has {found}, and this site allows queries only in the namespaces {limit}; "
        "remove metrics",
    ),
)
"""Rules for limits on a single object, in the order in which violations are reported."""
