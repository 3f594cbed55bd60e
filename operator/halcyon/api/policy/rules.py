"""Rules of the site policy, each written in CEL for the API server, and in Python for the check during a reconcile.

A rule returns the values in a spec that its limit does not allow, as texts; if there are none, the spec complies. A differential test
compares both forms. In CEL, `LIMIT` stands for the limit, and the names in `SHARED` are variables for common expressions. Out of scope:
limits on sums over several objects, which only the operator can check (`halcyon.control.reconcile.gpu_reservations`).
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
from halcyon.api.spec.model import SOURCE_KINDS
from halcyon.api.types import ApiModel


@dataclass(frozen=True)
class PolicyRule:
    """Rule of the site policy that checks one limit."""

    value: str
    """Path of the limit in the policy, as in the chart's values."""
    cel: str
    """CEL expression for the list of values that the limit does not allow."""
    find: Callable[[PolicySubject, Any], list[str]]
    """Python function that returns the same list, given the spec to check and the limit."""
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

    def say(self, asked: PolicySubject) -> str:
        """Return the message for a violation of the rule; empty if the spec complies."""
        limit = self.unset if (found := self.limit(asked.policy)) is None else found
        if limit is None or asked.namespace in asked.policy.exempt_namespaces:
            return ""
        found = self.find(asked, limit)
        return self.message.format(found=", ".join(found), limit=shown(limit)) if found else ""


def at(policy: SitePolicy, path: str) -> Any:  # the value's own type
    """Return the value in the site policy at a path of camelCase names."""
    return _getter(path)(policy)


@cache
def _getter(path: str) -> attrgetter[Any]:
    found: Any = ANYTHING
    names: list[str] = []
    for alias in path.split("."):
        fields = type(found).model_fields if isinstance(found, ApiModel) else {}
        names.append(next(name for name, info in fields.items() if (info.alias or name) == alias))
        found = getattr(found, names[-1])
    return attrgetter(".".join(names))


def shown(limit: Any) -> str:
    """Return the limit as text for messages."""
    return (", ".join(limit) or "none") if isinstance(limit, tuple) else str(limit)


def refusals(asked: PolicySubject) -> list[str]:
    """Return a message for each rule that the spec violates."""
    return [said for rule in RULES if rule.action == "Deny" and (said := rule.say(asked))]


def warnings(asked: PolicySubject) -> list[str]:
    """Return a message for each rule that the spec violates and whose violation only causes a warning."""
    return [said for rule in RULES if rule.action == "Warn" and (said := rule.say(asked))]


def most_replicas(asked: PolicySubject) -> int | None:
    """Return the maximum replicas that the policy allows for this model; None if there is no limit."""
    limits, gpus = asked.policy.limits, asked.spec.runtime.gpus
    if asked.namespace in asked.policy.exempt_namespaces:
        return None
    found = [limits.replicas]
    if limits.gpus_per_model is not None and gpus:
        found.append(ResourceLimit(limits.gpus_per_model).replicas(gpus))
    return min((n for n in found if n is not None), default=None)


def _full_name(image: str) -> str:
    """Return a CEL expression for `python_rules.full_name` of the image."""
    return (
        f"{image}.matches('^(localhost|[^/]*[.:][^/]*)/') "
        f"? ({image}.matches('^docker[.]io/[^/]+$') ? 'docker.io/library/' + {image}.substring(10) : {image}) "
        f": ({image}.contains('/') ? 'docker.io/' : 'docker.io/library/') + {image}"
    )


def _foreign(image: str, name: str) -> str:
    return (
        f"{image} == '' || LIMIT.exists(r, {name}.startsWith(r + '/') || (r.contains('/') && "
        f"({name} == r || {name}.startsWith(r + ':') || {name}.startsWith(r + '@')))) ? [] : [{image}]"
    )


def _unlisted(found: str) -> str:
    return (
        f"({found}).filter(s, !LIMIT.exists(a, a.endsWith('*') ? s.startsWith(a.substring(0, a.size() - 1)) : s == a))"
    )


SHARED: Final = (
    ("image", "object.spec.?runtime.?image.orValue('')"),
    ("imageName", _full_name("variables.image")),
    ("modelImage", "object.spec.model.source.?image.?reference.orValue('')"),
    ("modelImageName", _full_name("variables.modelImage")),
    (
        "tritonVersion",
        (
            "variables.image.contains('@') "
            "? (variables.image.substring(variables.image.indexOf('@') + 1) in variables.tritonDigests "
            "? string(variables.tritonDigests[variables.image.substring(variables.image.indexOf('@') + 1)]) : '') "
            ": (variables.image.matches(':[0-9][0-9][.][0-9][0-9]([.-][A-Za-z0-9_.-]*)?$') "
            "? variables.image.find(':[0-9][0-9][.][0-9][0-9]([.-][A-Za-z0-9_.-]*)?$').substring(1, 6) : '')"
        ),
    ),
    (
        "secretNames",
        (
            "object.spec.?runtime.?env.orValue([]).filter(e, has(e.valueFrom) && has(e.valueFrom.secretKeyRef))"
            ".map(e, e.valueFrom.secretKeyRef.name) "
            "+ object.spec.?runtime.?envFrom.orValue([]).filter(e, has(e.secretRef)).map(e, e.secretRef.name) "
            "+ object.spec.?runtime.?imagePullSecrets.orValue([]).map(s, s.name) "
            "+ [object.spec.?traffic.?tls.?secretName.orValue(''), object.spec.?traffic.?tls.?clientCA.orValue(''), "
            "object.spec.?traffic.?apiKeys.?secretName.orValue(''), object.spec.model.source.?credentials.?secretName.orValue('')]"
            ".filter(s, s != '')"
        ),
    ),
    ("url", "object.spec.model.source.?uri.orValue('')"),
    (
        "endpoints",
        (
            "[object.spec.model.source.?endpoint.orValue(''), "
            "object.spec.model.source.?credentials.?identity.?endpoint.orValue('')].filter(e, e != '')"
        ),
    ),
    ("nodeSelector", "object.spec.?runtime.?placement.?nodeSelector.orValue({})"),
    ("env", "object.spec.?runtime.?env.orValue([])"),
    ("envFrom", "object.spec.?runtime.?envFrom.orValue([])"),
    ("nodeAffinity", "object.spec.?runtime.?placement.?affinity.?nodeAffinity"),
    (
        "nodeTerms",
        (
            "variables.nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution.?nodeSelectorTerms.orValue([]) + "
            "variables.nodeAffinity.?preferredDuringSchedulingIgnoredDuringExecution.orValue([]).map(p, p.preference)"
        ),
    ),
    ("tolerations", "object.spec.?runtime.?placement.?tolerations.orValue([])"),
    (
        "replicas",
        "has(object.spec.scaling) ? int(object.spec.scaling.maxReplicas) : int(object.spec.?replicas.orValue(1))",
    ),
    ("gpus", "int(object.spec.?runtime.?gpu.?count.orValue(0)) * variables.replicas"),
    (
        "hostnames",
        (
            "has(object.spec.traffic) && has(object.spec.traffic.gateway) "
            "? (object.spec.traffic.gateway.?http.?hostnames.orValue(['*']) "
            "+ (has(object.spec.traffic.gateway.grpc) ? object.spec.traffic.gateway.grpc.?hostnames.orValue(['*']) : [])) "
            ": []"
        ),
    ),
)
"""Variables of the admission policy with their CEL expressions. Each may use those before it. The value of
`tritonDigests` comes from the site policy."""


_OLD_CEL = "variables.image == '' || (variables.tritonVersion != '' && variables.tritonVersion >= LIMIT) ? [] : [variables.image]"
_PULLED = "remove it to use the site's default image"

RULES: Final = (
    PolicyRule(
        "images.registries",
        _foreign("variables.image", "variables.imageName"),
        findings.foreign,
        "spec.runtime.image is {found}, which this site does not allow (allowed registries: {limit}); " + _PULLED,
    ),
    PolicyRule(
        "images.pinned",
        "[variables.image, variables.modelImage].filter(i, i != '' && !i.contains('@') && (LIMIT != 'Tag' || "
        "!i.matches(':[A-Za-z0-9_][A-Za-z0-9_.-]*$') || i.endsWith(':latest')))",
        findings.loose,
        "spec.runtime.image or spec.model.source.image.reference is {found}, but this site requires "
        "image references by {limit} (a tag other than latest, or a digest); for example "
        "tritonserver@sha256: and 64 hexadecimal digits",
    ),
    PolicyRule(
        "triton.refuseBelow",
        _OLD_CEL,
        findings.old,
        "spec.runtime.image is {found}, but this site requires Triton {limit} or newer, with a tag "
        "such as 26.07-py3 or a digest listed in sitePolicy.triton.digests; " + _PULLED,
    ),
    PolicyRule(
        "triton.warnBelow",
        _OLD_CEL,
        findings.old,
        "spec.runtime.image is {found}, but this site recommends Triton {limit} or newer, with a tag "
        "such as 26.07-py3 or a digest listed in sitePolicy.triton.digests; " + _PULLED,
        action="Warn",
    ),
    PolicyRule(
        "models.sources",
        "object.spec.model.source.filter(k, k in " + str(list(SOURCE_KINDS)) + " && !(k in LIMIT))",
        findings.sources,
        "spec.model.source is of kind {found}, which this site does not allow (allowed: {limit}); "
        "for example source: {{persistentVolumeClaim: {{claimName: models}}}}",
    ),
    PolicyRule(
        "models.urls",
        "variables.url == '' || LIMIT.exists(a, (variables.url.replace('@', '/') + '/').startsWith(a.replace('{namespace}', request.namespace) + '/')) "
        "? [] : [variables.url]",
        findings.urls,
        "spec.model.source.uri is {found}, which this site does not allow (allowed prefixes: "
        "{limit}; {{namespace}} is the ModelDeployment's namespace); move the model there",
    ),
    PolicyRule(
        "models.endpoints",
        "variables.endpoints.filter(e, !(e in LIMIT))",
        findings.endpoints,
        "spec.model.source.endpoint or credentials.identity.endpoint is {found}, which this site does not allow "
        "(allowed: {limit}); remove it to use the service of AWS, Azure, Google or Hugging Face",
    ),
    PolicyRule(
        "models.images",
        _foreign("variables.modelImage", "variables.modelImageName"),
        findings.foreign_model,
        "spec.model.source.image.reference is {found}, which this site does not allow (allowed "
        "registries: {limit}); push the image there",
    ),
    PolicyRule(
        "models.backends",
        "has(object.spec.model.backend) && !(object.spec.model.backend in LIMIT) ? [object.spec.model.backend] : []",
        lambda asked, limit: findings.outside(asked.spec.model.backend, limit),
        "spec.model.backend is {found}, which this site does not allow (allowed: {limit}); convert "
        "the model, for example to ONNX (backend: onnxruntime)",
    ),
    PolicyRule(
        "models.secrets",
        _unlisted("variables.secretNames"),
        findings.secrets,
        "spec refers to the Secrets {found}, which this site does not allow (allowed: {limit}); rename the Secret",
    ),
    PolicyRule(
        "pods.priorityClasses",
        "object.spec.?runtime.?placement.?priorityClassName.hasValue() && "
        "!(object.spec.runtime.placement.priorityClassName in LIMIT) ? [object.spec.runtime.placement.priorityClassName] : []",
        lambda asked, limit: findings.outside(asked.spec.runtime.placement.priority_class_name, limit),
        "spec.runtime.placement.priorityClassName is {found}, which this site does not allow "
        "(allowed: {limit}); remove it to use the cluster's default",
    ),
    PolicyRule(
        "pods.runtimeClasses",
        "object.spec.?runtime.?placement.?runtimeClassName.hasValue() && "
        "!(object.spec.runtime.placement.runtimeClassName in LIMIT) ? [object.spec.runtime.placement.runtimeClassName] : []",
        lambda asked, limit: findings.outside(asked.spec.runtime.placement.runtime_class_name, limit),
        "spec.runtime.placement.runtimeClassName is {found}, which this site does not allow "
        "(allowed: {limit}); remove it to use the nodes' default",
    ),
    PolicyRule(
        "pods.nodeSelectors",
        "variables.nodeSelector.filter(k, !(k in LIMIT || (k + '=' + variables.nodeSelector[k]) in LIMIT))"
        ".map(k, k + '=' + variables.nodeSelector[k]) + variables.nodeTerms.map(t, t.matchExpressions.filter(e, !(e.key in LIMIT "
        "|| (e.operator == 'In' && e.values.all(v, (e.key + '=' + v) in LIMIT)))).map(e, e.key).join(', ')).filter(t, t != '')",
        findings.selectors,
        "spec.runtime.placement has the node labels {found} in nodeSelector or affinity.nodeAffinity, which this site does "
        "not allow (allowed: {limit}); remove the others",
    ),
    PolicyRule(
        "pods.tolerations",
        "variables.tolerations.filter(t, !(t.key in LIMIT || (t.?operator.orValue('Equal') != 'Exists' && "
        "(t.key + '=' + t.?value.orValue('')) in LIMIT)))"
        ".map(t, t.?operator.orValue('Equal') == 'Exists' ? t.key : t.key + '=' + t.?value.orValue(''))",
        findings.tolerations,
        "spec.runtime.placement.tolerations has {found}, which this site does not allow (allowed: "
        "{limit}); remove the others",
    ),
    PolicyRule(
        "pods.resourceClaimTemplates",
        "object.spec.?runtime.?gpu.?resourceClaimTemplateName.hasValue() && "
        "!(object.spec.runtime.gpu.resourceClaimTemplateName in LIMIT) "
        "? [object.spec.runtime.gpu.resourceClaimTemplateName] : []",
        lambda asked, limit: findings.outside(
            None if asked.spec.runtime.gpu is None else asked.spec.runtime.gpu.resource_claim_template_name, limit
        ),
        "spec.runtime.gpu.resourceClaimTemplateName is {found}, which this site does not allow "
        "(allowed: {limit}); use one of these, or a resource, for example gpu: {{count: 1}}",
    ),
    PolicyRule(
        "pods.serviceAccounts",
        "[object.spec.?runtime.?serviceAccountName.orValue('default')].filter(s, s != 'default' && !(s in LIMIT))",
        lambda asked, limit: findings.outside(asked.spec.runtime.service_account_name, (*limit, "default")),
        "spec.runtime.serviceAccountName is {found}, which this site does not allow (allowed: {limit}; chart value "
        "sitePolicy.pods.serviceAccounts); remove it to use the namespace's default",
        unset=(),
    ),
    PolicyRule(
        "pods.env",
        _unlisted("variables.env.map(e, e.name) + variables.envFrom.map(e, e.?prefix.orValue('') + '*')"),
        findings.environment,
        "spec.runtime.env or envFrom sets {found}, which this site does not allow (allowed: {limit}); rename the variable, "
        "or give the entry of envFrom an allowed prefix",
    ),
    PolicyRule(
        "pods.configMaps",
        _unlisted(
            "variables.env.filter(e, has(e.valueFrom) && has(e.valueFrom.configMapKeyRef))"
            ".map(e, e.valueFrom.configMapKeyRef.name) "
            "+ variables.envFrom.filter(e, has(e.configMapRef)).map(e, e.configMapRef.name)"
        ),
        findings.config_maps,
        "spec.runtime.env or envFrom refers to the ConfigMaps {found}, which this site does not allow (allowed: {limit}); "
        "rename the ConfigMap",
    ),
    PolicyRule(
        "limits.replicas",
        "variables.replicas > LIMIT ? [string(variables.replicas)] : []",
        lambda asked, limit: findings.more(findings.replicas(asked.spec), limit),
        "spec.scaling.maxReplicas (spec.replicas if scaling is not set) is {found}, but this site "
        "allows at most {limit}; for example maxReplicas: {limit}",
    ),
    PolicyRule(
        "limits.gpusPerModel",
        "variables.gpus > LIMIT ? [string(variables.gpus)] : []",
        lambda asked, limit: findings.more(asked.spec.runtime.gpus * findings.replicas(asked.spec), limit),
        "spec.runtime.gpu.count times the maximum number of replicas is {found} GPUs, but this site "
        "allows at most {limit} for one model; lower spec.scaling.maxReplicas (spec.replicas if scaling is not "
        "set) or spec.runtime.gpu.count, for example maxReplicas: 1",
    ),
    PolicyRule(
        "traffic.serviceTypes",
        "object.spec.?traffic.?service.?type.orValue('ClusterIP') in LIMIT "
        "? [] : [object.spec.?traffic.?service.?type.orValue('ClusterIP')]",
        lambda asked, limit: findings.outside(asked.spec.traffic.service.type, limit),
        "spec.traffic.service.type is {found}, which this site does not allow (allowed: {limit}); "
        "for example type: ClusterIP",
    ),
    PolicyRule(
        "traffic.gateways",
        "has(object.spec.traffic) && has(object.spec.traffic.gateway) "
        "? [object.spec.traffic.gateway.?namespace.orValue(request.namespace) + '/' + object.spec.traffic.gateway.name]"
        ".filter(g, !LIMIT.exists(a, a.replace('{namespace}', request.namespace) == g)) : []",
        findings.gateways,
        "spec.traffic.gateway is {found}, which this site does not allow (allowed: {limit}; "
        "{{namespace}} is the ModelDeployment's namespace); use one of these",
    ),
    PolicyRule(
        "traffic.hostnames",
        "variables.hostnames.filter(h, !LIMIT.exists(a, a.replace('{namespace}', request.namespace) == h || "
        "(a.startsWith('*.') && h.endsWith(a.replace('{namespace}', request.namespace).substring(1)))))",
        findings.hostnames,
        "spec.traffic.gateway has the hostnames {found} (* if none is set), which this site does not "
        "allow (allowed: {limit}; {{namespace}} is the ModelDeployment's namespace); set allowed "
        "ones in http.hostnames and grpc.hostnames",
    ),
    PolicyRule(
        "canary.queryNamespaces",
        "request.namespace in LIMIT ? [] : object.spec.?rollout.?canary.?analysis.?metrics.orValue([]).map(m, m.name)",
        findings.queries,
        "spec.rollout.canary.analysis.metrics has {found}, and this site allows queries only in the namespaces {limit}; "
        "remove metrics",
    ),
)
"""Rules for limits on a single object, in the order in which violations are reported."""
