"""Objects of a model's balancer: the plan, the Deployment, the Service, and the permissions of the agent."""

from __future__ import annotations

import ipaddress
import math

from halcyon.api.documents.balancer_plan import (
    CERTIFICATE_FOLDER,
    CLIENTS_FOLDER,
    DRAIN_HEADER,
    HAPROXY_MEMORY_MIB,
    KEYS_FOLDER,
    PLAN_KEY,
    BalancerPlan,
    CollectorAddress,
    LowerClass,
)
from halcyon.api.documents.balancer_plan import Slot as PlannedSlot
from halcyon.api.documents.observation_report import AUDIENCE
from halcyon.api.spec import Spec, defaults
from halcyon.api.types import duration_us, quantity
from halcyon.render import names
from halcyon.render.metadata import RESTRICTED, Object, child, placed, pod_security, pull_secrets, resources, spread
from halcyon.render.model_overlay import model_name
from halcyon.render.names import Slot
from halcyon.render.server import drain_s, evictable_singly
from halcyon.render.server_maxconn import finds_concurrency, server_connections
from halcyon.render.site import Site, Subject

ACCEPTED_KEY = "accepted.json"
"""Key of the last accepted spec in the ConfigMap of the balancers' plan. It stays in effect while a newer spec is
invalid."""

PRE_STOP_S = 10
"""Time from the deletion of a balancer pod until HAProxy's stop signal, in seconds.

During this time, every kube-proxy stops sending new connections to the pod. On an open connection, the response to the
next request makes the client reconnect.
"""
STOP_MARGIN_S = 10
"""Time from the end of `traffic.drainTimeout`, which begins with HAProxy's stop signal, until the kubelet's SIGKILL, in
seconds."""

MALLOC_CONF = "dirty_decay_ms:0,muzzy_decay_ms:0"
"""Options of jemalloc, HAProxy's allocator, that return free pages at once, which saves 0.8 MiB without measurable CPU
time."""
AGENT_MEMORY_MIB = 96
"""Memory limit of the agent's container, in MiB."""

_NO_QUEUE_LIMIT = 100_000
"""Value of `queue_limit` in a plan without a limit on the queue. The memory limit of a balancer limits the queue to
fewer requests."""
_RUN = "/run/halcyon"
_UNMESHED = {
    "config.linkerd.io/skip-inbound-ports": str(names.AGENT_PORT),
    "traffic.sidecar.istio.io/excludeInboundPorts": str(names.AGENT_PORT),
    "traffic.sidecar.istio.io/excludeOutboundPorts": f"{names.HTTP_PORT},{names.GRPC_PORT},{names.METRICS_PORT}",
}
"""Annotations that exclude the agent's port and connections to servers from service meshes.

The kubelet connects to the agent's port without mTLS, which a mesh in strict mode would reject. Istio routes a request
by its Host header instead of its address, so it would send requests for servers back to the balancers.
"""

_AZURE_PROBES = {
    f"service.beta.kubernetes.io/port_{port}_health-probe_protocol": "tcp"
    for port in (names.HTTP_PORT, names.GRPC_PORT)
}
"""Annotations that make Azure's load balancer probe the ports by TCP.

Without them, it requests `/` from each port whose `appProtocol` is `http` or `https`. The response never has the status
200, so no connection would be passed on. Other clouds ignore the annotations.
"""


def plan(
    subject: Subject,
    spec: Spec,
    site: Site,
    slots: tuple[Slot, ...],
    *,
    start_s: float | None = None,
    lower_class: LowerClass = "None",
) -> BalancerPlan:
    """Build the plan for the model's balancers from the accepted spec.

    `slots` are the slots in use. `start_s` is the last measured start duration of a pod, in seconds; None if unknown.
    `lower_class` is the capacity for requests of BatchInferences; `"None"` if no BatchInference of the model runs.
    """
    queue_ms, hold_ms = defaults.queue_timeout_ms(spec), defaults.hold_timeout_ms(spec, start_s)
    most = defaults.most_replicas(spec)
    objective_s = defaults.objective_s(spec) if defaults.overload_mode(spec) == "Reject" else None
    objective_ms = max(round(objective_s * 1000), 1) if objective_s else 0
    needs_batch = objective_ms > 0 or lower_class != "None"
    return BalancerPlan(
        namespace=subject.namespace,
        name=subject.name,
        model=model_name(subject.name, spec),
        slots=tuple(
            PlannedSlot(name=slot, service=names.slot_service(subject.name, slot), weight=100, capacity=_capacity(most))
            for slot in slots
        ),
        max_connections=server_connections(spec),
        max_concurrency=spec.traffic.max_concurrency or 0,
        finds_concurrency=finds_concurrency(spec),
        queue_limit=defaults.queue_limit(spec) or _NO_QUEUE_LIMIT,
        objective_ms=objective_ms,
        max_batch=((spec.batching.max_batch_size if spec.batching else None) or 0) if needs_batch else 0,
        instances=spec.runtime.instances if needs_batch else 1,
        balancers=spec.traffic.balancer_replicas,
        source_share=spec.traffic.source_share,
        queue_timeout_ms=queue_ms,
        hold_timeout_ms=hold_ms if hold_ms > queue_ms else 0,
        response_timeout_ms=max(duration_us(spec.traffic.response_timeout) // 1000, 1),
        drain_ms=drain_s(spec) * 1000,
        max_request_bytes=int(quantity(spec.traffic.max_request_size)),
        access_log=spec.traffic.access_log,
        sticky_header=spec.traffic.stickiness.header.lower() if spec.traffic.stickiness else "",
        # A pod may keep state for the header's value, even if the model's configuration does not show it.
        sequences=spec.traffic.stickiness is not None,
        collector=site.collector,
        lower_class=lower_class,
    )


def _capacity(most: int) -> int:
    # Twice the maximum, because draining pods of the old revision and their replacements exist at the same time. A power of two, so that
    # small changes to maxReplicas need no reload.
    return int(2 ** math.ceil(math.log2(2 * most + 4)))


def config_map(subject: Subject, accepted: BalancerPlan, accepted_spec: str) -> Object:
    """Build the ConfigMap with the balancers' plan, which the agents watch, and the accepted spec."""
    result = child("v1", "ConfigMap", subject, names.balancer(subject.name), names.BALANCER)
    result["data"] = {PLAN_KEY: accepted.to_json(), ACCEPTED_KEY: accepted_spec}
    return result


def service_account(subject: Subject) -> Object:
    """Build the agents' ServiceAccount, which determines their permissions and the model that they may report on."""
    result = child("v1", "ServiceAccount", subject, names.balancer(subject.name), names.BALANCER)
    result["automountServiceAccountToken"] = False
    return result


def role(subject: Subject) -> Object:
    """Build the Role of the balancers' agents.

    It permits reading the plan's ConfigMap, and all EndpointSlices of the namespace, because their names are not known
    in advance.
    """
    result = child("rbac.authorization.k8s.io/v1", "Role", subject, names.balancer(subject.name), names.BALANCER)
    result["rules"] = [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [names.balancer(subject.name)],
            "verbs": ["list", "watch"],
        },
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    return result


def role_binding(subject: Subject) -> Object:
    """Build the RoleBinding of the ServiceAccount of the balancers' agents to its Role."""
    name = names.balancer(subject.name)
    result = child("rbac.authorization.k8s.io/v1", "RoleBinding", subject, name, names.BALANCER)
    result["roleRef"] = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    result["subjects"] = [{"kind": "ServiceAccount", "name": name, "namespace": subject.namespace}]
    return result


def service(subject: Subject, spec: Spec) -> Object:
    """Build the Service for clients, which has the same name as the ModelDeployment and selects the balancers."""
    options, tls = spec.traffic.service, "https" if spec.traffic.tls else ""
    result = child("v1", "Service", subject, subject.name, names.BALANCER)
    annotations = (_AZURE_PROBES if options.type == "LoadBalancer" else {}) | (options.annotations or {})
    if annotations:
        result["metadata"]["annotations"] = dict(sorted(annotations.items()))
    result["spec"] = {
        "type": options.type,
        "selector": names.selector(subject.name, names.BALANCER),
        "ports": [
            {"name": name, "port": port, "protocol": "TCP", "targetPort": name, "appProtocol": tls or plain}
            for name, port, plain in (("http", names.HTTP_PORT, "http"), ("grpc", names.GRPC_PORT, "kubernetes.io/h2c"))
        ],
    }
    if spec.traffic.stickiness is not None:
        # Balancers do not share their tables of header values, so each client must stay on one balancer.
        result["spec"]["sessionAffinity"] = "ClientIP"
    if options.source_ranges:
        # Convert them to network addresses, because the API server may reject a range with host bits.
        networks = [str(ipaddress.ip_network(text, strict=False)) for text in options.source_ranges]
        result["spec"]["loadBalancerSourceRanges"] = list(dict.fromkeys(networks))
    return result


def disruption_budget(subject: Subject) -> Object:
    """Build the PodDisruptionBudget of the balancers."""
    return evictable_singly(subject, names.balancer(subject.name), names.BALANCER)


def deployment(subject: Subject, spec: Spec, site: Site) -> Object:
    """Build the Deployment of the balancers: HAProxy, and the agent as a sidecar that starts first and stops last."""
    result = child("apps/v1", "Deployment", subject, names.balancer(subject.name), names.BALANCER)
    selector = names.selector(subject.name, names.BALANCER)
    result["spec"] = {
        "replicas": spec.traffic.balancer_replicas,
        "revisionHistoryLimit": 2,
        "selector": {"matchLabels": selector},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": {
            "metadata": {"labels": names.labels(subject.name, names.BALANCER), "annotations": _UNMESHED},
            "spec": {
                "serviceAccountName": names.balancer(subject.name),
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                # The sum of all steps, so the kubelet never kills the pod during one of them.
                "terminationGracePeriodSeconds": PRE_STOP_S + drain_s(spec) + STOP_MARGIN_S,
                "securityContext": pod_security(65532, site),
                "initContainers": [_agent(subject, spec, site)],
                "containers": [_haproxy(subject, site)],
                "volumes": [*_volumes(), *_secrets(spec)],
                **spread(selector),
            },
        },
    }
    result["spec"]["template"]["spec"] |= pull_secrets(spec, site) | placed(site.balancers)
    return result


def _agent(subject: Subject, spec: Spec, site: Site) -> Object:
    tls = spec.traffic.tls
    return {
        "name": "agent",
        "image": site.operator_image,
        "args": [
            "agent",
            f"--namespace={subject.namespace}",
            f"--plan={names.balancer(subject.name)}",
            f"--run-dir={_RUN}",
            f"--port={names.AGENT_PORT}",
            # The agent sends its token to this address, so it isn't taken from the plan, which tenants can edit.
            *(_collector(site.collector) if site.collector else ()),
            f"--drain-key={_drain_key(subject)}",
            # These are arguments and not part of the plan, so that a pod never switches between TLS and plain text.
            *([f"--certificate-secret={tls.secret_name}"] if tls else ()),
            *([f"--clients-secret={tls.client_ca}"] if tls and tls.client_ca else ()),
            *([f"--keys-secret={spec.traffic.api_keys.secret_name}"] if spec.traffic.api_keys else ()),
        ],
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "restartPolicy": "Always",
        "ports": [{"name": "agent", "containerPort": names.AGENT_PORT}],
        "startupProbe": {
            "httpGet": {"path": "/healthz", "port": "agent"},
            "periodSeconds": 1,
            "timeoutSeconds": 2,
            "failureThreshold": 60,
        },
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": "agent"},
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 3,
        },
        "resources": resources(site, cpu="10m", memory="48Mi", memory_limit=f"{AGENT_MEMORY_MIB}Mi"),
        "securityContext": RESTRICTED,
        "volumeMounts": [
            {"name": "run", "mountPath": _RUN},
            {"name": "kubernetes", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True},
            {"name": "collector", "mountPath": "/var/run/secrets/halcyon", "readOnly": True},
            *(
                {"name": volume["name"], "mountPath": f"/var/run/secrets/{volume['name']}", "readOnly": True}
                for volume in _secrets(spec)
            ),
        ],
    }


def _collector(address: CollectorAddress) -> tuple[str, ...]:
    return f"--collector={address.host}:{address.port}", f"--collector-name={address.server_name}"


def _drain_key(subject: Subject) -> str:
    """Return the secret key in the kubelet's drain requests to the model's balancers, which clients don't know."""
    return names.digest([subject.uid, "drain"])


def _haproxy(subject: Subject, site: Site) -> Object:
    return {
        "name": "haproxy",
        "image": site.balancer_image,
        "command": ["haproxy"],
        "args": ["-W", "-db", "-S", f"{_RUN}/master.sock", "-f", f"{_RUN}/haproxy.cfg"],
        "env": [{"name": "MALLOC_CONF", "value": MALLOC_CONF}],
        "ports": [
            {"name": "http", "containerPort": names.HTTP_PORT},
            {"name": "grpc", "containerPort": names.GRPC_PORT},
            {"name": "metrics", "containerPort": names.HAPROXY_METRICS_PORT},
        ],
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": names.AGENT_PORT},
            "periodSeconds": 1,
            "timeoutSeconds": 2,
            "failureThreshold": 3,
        },
        "lifecycle": {
            "preStop": {
                "httpGet": {
                    "path": f"/drain?delay={PRE_STOP_S}",
                    "port": names.AGENT_PORT,
                    "scheme": "HTTP",
                    "httpHeaders": [{"name": DRAIN_HEADER, "value": _drain_key(subject)}],
                }
            }
        },
        "resources": resources(site, cpu="50m", memory="32Mi", memory_limit=f"{HAPROXY_MEMORY_MIB}Mi"),
        "securityContext": RESTRICTED,
        "volumeMounts": [{"name": "run", "mountPath": _RUN}],
    }


def _secrets(spec: Spec) -> list[Object]:
    """Return the Secret volumes from which the agent builds HAProxy's files. Each is named like its folder.

    The Secrets are optional: if one is missing, the pod still starts, and its agent reports the problem.
    """
    tls, api_keys = spec.traffic.tls, spec.traffic.api_keys
    volumes: list[tuple[str, str, tuple[str, ...]]] = []
    if tls:
        volumes.append((CERTIFICATE_FOLDER, tls.secret_name, ("tls.crt", "tls.key")))
    if tls and tls.client_ca:
        volumes.append((CLIENTS_FOLDER, tls.client_ca, ("ca.crt",)))
    if api_keys:
        volumes.append((KEYS_FOLDER, api_keys.secret_name, ()))
    return [
        {
            "name": folder,
            "secret": {"secretName": name, "optional": True}
            | ({"items": [{"key": key, "path": key} for key in keys]} if keys else {}),
        }
        for folder, name, keys in volumes
    ]


def _volumes() -> list[Object]:
    return [
        {"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
        {
            "name": "kubernetes",
            "projected": {
                "sources": [
                    {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                    {
                        "downwardAPI": {
                            "items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]
                        }
                    },
                ]
            },
        },
        {
            "name": "collector",
            "projected": {
                "sources": [{"serviceAccountToken": {"path": "token", "audience": AUDIENCE, "expirationSeconds": 3607}}]
            },
        },
    ]
