"""CEL expressions of the site policy's rules, for the admission policies that the API server evaluates.

`halcyon.api.policy.rules` has the same rules in Python, for the check during a reconcile. A differential test compares
the two forms. In CEL, `LIMIT` stands for the limit, and the names in `SHARED` are variables for common expressions.
"""

from __future__ import annotations

from typing import Final

from halcyon.api.spec.model import SOURCE_KINDS


def _full_name(image: str) -> str:
    """Return a CEL expression for the full name of an image, as in `python_rules.full_name`."""
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


def _unlisted(values: str) -> str:
    return (
        f"({values}).filter(s, !LIMIT.exists(a, a.endsWith('*') ? s.startsWith(a.substring(0, a.size() - 1)) : s == a))"
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
    (
        "nodeTerms",  # not from a variable for nodeAffinity: the API server reads a variable of an optional type as none
        (
            "object.spec.?runtime.?placement.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution"
            ".?nodeSelectorTerms.orValue([]) + object.spec.?runtime.?placement.?affinity.?nodeAffinity"
            ".?preferredDuringSchedulingIgnoredDuringExecution.orValue([]).map(p, p.preference)"
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
"""Variables of the admission policy with their CEL expressions. Each may use the variables before it. The value of
`tritonDigests` comes from the site policy."""

_OLD_CEL = "variables.image == '' || (variables.tritonVersion != '' && variables.tritonVersion >= LIMIT) ? [] : [variables.image]"

EXPRESSIONS: Final = {
    "images.registries": _foreign("variables.image", "variables.imageName"),
    "images.pinned": (
        "[variables.image, variables.modelImage].filter(i, i != '' && !i.contains('@') && (LIMIT != 'Tag' || "
        "!i.matches(':[A-Za-z0-9_][A-Za-z0-9_.-]*$') || i.endsWith(':latest')))"
    ),
    "triton.refuseBelow": _OLD_CEL,
    "triton.warnBelow": _OLD_CEL,
    "models.sources": "object.spec.model.source.filter(k, k in " + str(list(SOURCE_KINDS)) + " && !(k in LIMIT))",
    "models.urls": (
        "variables.url == '' || LIMIT.exists(a, (variables.url.replace('@', '/') + '/').startsWith(a.replace('{namespace}', request.namespace) + '/')) "
        "? [] : [variables.url]"
    ),
    "models.endpoints": "variables.endpoints.filter(e, !(e in LIMIT))",
    "models.images": _foreign("variables.modelImage", "variables.modelImageName"),
    "models.backends": "has(object.spec.model.backend) && !(object.spec.model.backend in LIMIT) ? [object.spec.model.backend] : []",
    "models.secrets": _unlisted("variables.secretNames"),
    "pods.priorityClasses": (
        "object.spec.?runtime.?placement.?priorityClassName.hasValue() && "
        "!(object.spec.runtime.placement.priorityClassName in LIMIT) ? [object.spec.runtime.placement.priorityClassName] : []"
    ),
    "pods.runtimeClasses": (
        "object.spec.?runtime.?placement.?runtimeClassName.hasValue() && "
        "!(object.spec.runtime.placement.runtimeClassName in LIMIT) ? [object.spec.runtime.placement.runtimeClassName] : []"
    ),
    "pods.nodeSelectors": (
        "variables.nodeSelector.filter(k, !(k in LIMIT || (k + '=' + variables.nodeSelector[k]) in LIMIT))"
        ".map(k, k + '=' + variables.nodeSelector[k]) + variables.nodeTerms.map(t, t.matchExpressions.filter(e, !(e.key in LIMIT "
        "|| (e.operator == 'In' && e.values.all(v, (e.key + '=' + v) in LIMIT)))).map(e, e.key).join(', ')).filter(t, t != '')"
    ),
    "pods.tolerations": (
        "variables.tolerations.filter(t, !(t.key in LIMIT || (t.?operator.orValue('Equal') != 'Exists' && "
        "(t.key + '=' + t.?value.orValue('')) in LIMIT)))"
        ".map(t, t.?operator.orValue('Equal') == 'Exists' ? t.key : t.key + '=' + t.?value.orValue(''))"
    ),
    "pods.resourceClaimTemplates": (
        "object.spec.?runtime.?gpu.?resourceClaimTemplateName.hasValue() && "
        "!(object.spec.runtime.gpu.resourceClaimTemplateName in LIMIT) "
        "? [object.spec.runtime.gpu.resourceClaimTemplateName] : []"
    ),
    "pods.serviceAccounts": "[object.spec.?runtime.?serviceAccountName.orValue('default')].filter(s, s != 'default' && !(s in LIMIT))",
    "pods.env": _unlisted("variables.env.map(e, e.name) + variables.envFrom.map(e, e.?prefix.orValue('') + '*')"),
    "pods.configMaps": _unlisted(
        "variables.env.filter(e, has(e.valueFrom) && has(e.valueFrom.configMapKeyRef))"
        ".map(e, e.valueFrom.configMapKeyRef.name) "
        "+ variables.envFrom.filter(e, has(e.configMapRef)).map(e, e.configMapRef.name)"
    ),
    "limits.replicas": "variables.replicas > LIMIT ? [string(variables.replicas)] : []",
    "limits.gpusPerModel": "variables.gpus > LIMIT ? [string(variables.gpus)] : []",
    "traffic.serviceTypes": (
        "object.spec.?traffic.?service.?type.orValue('ClusterIP') in LIMIT "
        "? [] : [object.spec.?traffic.?service.?type.orValue('ClusterIP')]"
    ),
    "traffic.gateways": (
        "has(object.spec.traffic) && has(object.spec.traffic.gateway) "
        "? [object.spec.traffic.gateway.?namespace.orValue(request.namespace) + '/' + object.spec.traffic.gateway.name]"
        ".filter(g, !LIMIT.exists(a, a.replace('{namespace}', request.namespace) == g)) : []"
    ),
    "traffic.hostnames": (
        "variables.hostnames.filter(h, !LIMIT.exists(a, a.replace('{namespace}', request.namespace) == h || "
        "(a.startsWith('*.') && h.endsWith(a.replace('{namespace}', request.namespace).substring(1)))))"
    ),
    "canary.queryNamespaces": "request.namespace in LIMIT ? [] : object.spec.?rollout.?canary.?analysis.?metrics.orValue([]).map(m, m.name)",
}
"""CEL expression for each rule, by the path of its limit. It evaluates to the list of values that the limit doesn't
allow."""
