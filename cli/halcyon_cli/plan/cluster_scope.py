"""Reconcile scope of a ModelDeployment that isn't applied yet, either read from a cluster or built offline.

The cluster is read with the user's permissions. `PlannedScope.notes` lists everything that the user may not read. Out
of scope: the resulting objects (`child_diff`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from halcyon.api.documents.balancer_plan import PLAN_KEY, CollectorAddress
from halcyon.api.policy.network import SiteNetwork
from halcyon.api.spec.placement import Placement
from halcyon.control.objects import pods
from halcyon.control.objects.child_names import every_child
from halcyon.control.state.scope import Scope, SourceState
from halcyon.kube import kinds
from halcyon.kube.kinds import CHILDREN, Kind
from halcyon.metricsapi.api_service import ExternalMetricsApi
from halcyon.render import names, revision
from halcyon.render.site import SERVICE_ANNOTATIONS, Site
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube import fields
from halcyon_cli.kube.client import Cluster
from halcyon_cli.plan.permitted_reads import PermittedReads

Object = Mapping[str, Any]
UNKNOWN_UID = "00000000-0000-0000-0000-000000000000"
_OPERATOR_SELECTOR = "app.kubernetes.io/name=halcyon"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_API_SERVICE = "v1beta1.external.metrics.k8s.io"
_IMAGES = {"operator-image": "operator", "balancer-image": "balancer", "server-image": "tritonserver"}


@dataclass(frozen=True)
class PlannedScope:
    """Reconcile scope of a model, with notes on what could not be read or was assumed."""

    scope: Scope
    notes: tuple[str, ...] = ()


def offline_scope(document: Object, documents: Sequence[Object]) -> PlannedScope:
    """Return the scope of a new model, assuming that Halcyon serves the metrics API.

    `documents` are the other objects in the file.
    """
    namespace = str(fields.mapping(document.get("metadata")).get("namespace") or "default")
    source, missing = _source(
        document, lambda name: _find_document(documents, "ConfigMap", name), lambda _: True, allow_missing=True
    )
    notes = [
        "offline: assumes a new model, placeholder images, and external.metrics.k8s.io served by Halcyon",
        *missing,
    ]
    api = ExternalMetricsApi(ours=True, why="offline", tolerance=True)
    resource = {
        **document,
        "metadata": {**document["metadata"], "namespace": namespace, "uid": UNKNOWN_UID, "generation": 1},
    }
    return PlannedScope(Scope(resource, _site({}, None), {}, source=source, metrics_api=api), tuple(notes))


def live_scope(cluster: Cluster, document: Object) -> PlannedScope:
    """Return the scope of a model in this cluster, with its existing objects.

    Raises:
        ClusterError: the API server would reject the model, or is unreachable.
    """
    name = str(document["metadata"]["name"])
    live = cluster.find(kinds.MODEL_DEPLOYMENT, name)
    reads = PermittedReads(cluster)
    resource = _dry_run_resource(reads, name, document, live)
    options = _operator_options(cluster)
    children = _children(reads, name, _kinds_to_read(options), is_new=live is None)
    options = options or _options_from_children(children, name)
    if not options:
        reads.notes.append(
            "you can't read the operator's Deployment, and the model has no objects yet: images are placeholders"
        )
    servers = [] if live is None else _servers(reads, name)
    source = _live_source(reads, document)
    scope = Scope(
        resource=dict(resource),
        site=_site(options, children.get((kinds.CONFIG_MAP, names.balancer(name)))),
        children={key: dict(obj) for key, obj in children.items()},
        revisions=_revisions(children),
        config_maps=_copied_config_maps(children),
        pods=tuple(pods.project(dict(pod)) for pod in servers),
        source=source,
        metrics_api=_metrics_api(reads, resource, options),
        gateway_api=_has_gateway_api(reads, document),
    )
    return PlannedScope(scope, tuple(dict.fromkeys(reads.notes)))


def _kinds_to_read(options: Mapping[str, list[str]]) -> tuple[Kind, ...]:
    return (*CHILDREN, *kinds.ROUTES, *(kinds.OPTIONAL if "network-policies" in options else ()))


def _children(
    reads: PermittedReads, name: str, kinds_to_read: Sequence[Kind], *, is_new: bool
) -> dict[tuple[Kind, str], Object]:
    """Return the existing objects of a model, and those of other owners that have a child's name."""
    children: dict[tuple[Kind, str], Object] = {}
    for kind in () if is_new else kinds_to_read:
        items = reads.items(kind, _absent(kind), selector=f"{names.OWNER_LABEL}={name}")
        children |= {(kind, str(obj["metadata"]["name"])): obj for obj in items}
    for kind, child in every_child(name):
        if kind not in kinds_to_read or (kind, child) in children:
            continue
        # An object of another owner may have the name; it lacks Halcyon's label.
        if (existing := reads.find(kind, child, _absent(kind))) is not None:
            children[kind, child] = existing
    return children


def _absent(kind: Kind) -> str:
    return f"you may not read {kind.plural}: existing ones are treated as absent"


def _revisions(children: Mapping[tuple[Kind, str], Object]) -> tuple[revision.Revision, ...]:
    records = [obj for (kind, _), obj in children.items() if kind is kinds.CONTROLLER_REVISION]
    return tuple(stored for stored in map(revision.read, records) if stored is not None)


def _copied_config_maps(children: Mapping[tuple[Kind, str], Object]) -> tuple[str, ...]:
    """Return the names of the immutable ConfigMaps, which are copies of the model's source."""
    return tuple(name for (kind, name), obj in children.items() if kind is kinds.CONFIG_MAP and obj.get("immutable"))


def _servers(reads: PermittedReads, name: str) -> Sequence[Object]:
    selector = f"{names.OWNER_LABEL}={name},{names.COMPONENT_LABEL}={names.SERVER}"
    note = "you may not read pods: the number of pods to replace is unknown"
    return reads.items(kinds.POD, note, selector=selector)


def _has_gateway_api(reads: PermittedReads, document: Object) -> bool:
    """Return whether the cluster has the kinds of routes. A user without the permission is assumed to have them."""
    note = "you may not read HTTPRoutes and GRPCRoutes: assumes that the cluster has these kinds"
    if fields.mapping(fields.mapping(document["spec"]).get("traffic")).get("gateway") is None:
        reads = PermittedReads(reads.cluster)  # without a Gateway, the kinds make no difference, so no note is needed
    return all(reads.is_served(kind, note) for kind in kinds.ROUTES)


def _dry_run_resource(reads: PermittedReads, name: str, document: Object, live: Object | None) -> Object:
    """Return the ModelDeployment as the API server would store it after an apply."""
    cluster = reads.cluster
    if live is None:
        body = {**document, "metadata": {**document["metadata"], "namespace": cluster.namespace}}
        stored = cluster.dry_run("POST", kinds.MODEL_DEPLOYMENT, "", body)
    else:
        body = {**live, "spec": spec_after_apply(live, document["spec"])}
        stored = cluster.dry_run("PUT", kinds.MODEL_DEPLOYMENT, name, body)
    if stored is not None:
        return stored
    reads.notes.append("you may not write ModelDeployments, so the API server did not check this one")
    meta = {"namespace": cluster.namespace, "name": name, "uid": UNKNOWN_UID, "generation": 1}
    return {**body, "metadata": meta | dict(fields.mapping(body.get("metadata")))}


def spec_after_apply(live: Object, spec: Object) -> dict[str, Any]:
    """Return the spec of a model in the cluster after `kubectl apply` of a file with the given spec. Pure."""
    return _applied(live["spec"], spec, _last_applied(live))


def _last_applied(live: Object) -> Object:
    """Return the spec that `kubectl apply` wrote last. Of a model without it, all fields count but the replicas."""
    annotations = fields.mapping(fields.mapping(live.get("metadata")).get("annotations"))
    try:
        return fields.mapping(json.loads(annotations[LAST_APPLIED])["spec"])
    except (KeyError, TypeError, ValueError):
        return {name: value for name, value in live["spec"].items() if name != "replicas"}  # scaling writes this field


def _applied(live: Object, document: Object, last: Object) -> dict[str, Any]:
    """Return the fields after `kubectl apply`: those that others have set stay, such as the mode that a pause sets."""
    kept = {name: value for name, value in live.items() if name in document or name not in last}
    changed = {
        name: _applied(*(fields.mapping(part.get(name)) for part in (live, document, last)))
        if isinstance(value, Mapping)
        else value
        for name, value in document.items()
    }
    return kept | changed


def _operator_options(cluster: Cluster) -> dict[str, list[str]]:
    """Return the operator's command line options, with its namespace as the option `namespace`.

    The result is empty if its Deployment can't be read.
    """
    try:
        operators = cluster.items(kinds.DEPLOYMENT, selector=_OPERATOR_SELECTOR, all_namespaces=True) or []
    except ClusterError:
        operators = []
    for deployment in operators:
        for container in _containers(_pod_of(deployment)):
            options: dict[str, list[str]] = {}
            for argument in map(str, fields.sequence(container.get("args"))):
                option, _, value = argument.removeprefix("--").partition("=")
                options.setdefault(option, []).append(value)
            if "operator-image" in options:
                return options | {"namespace": [str(fields.mapping(deployment.get("metadata")).get("namespace"))]}
    return {}


def _options_from_children(children: Mapping[tuple[Kind, str], Object], name: str) -> dict[str, list[str]]:
    """Return the operator's options that can be derived from the model's Deployments.

    The result is empty without a balancer Deployment.
    """
    balancer = _pod_of(children.get((kinds.DEPLOYMENT, names.balancer(name))))
    servers = next(
        (p for slot in names.SLOTS if (p := _pod_of(children.get((kinds.DEPLOYMENT, names.server(name, slot)))))), {}
    )
    images = {str(c.get("name")): str(c.get("image")) for c in _containers(balancer)}
    if not {"agent", "haproxy"} <= images.keys():
        return {}
    triton = [str(c.get("image")) for c in _containers(servers) if c.get("name") == "triton"]
    secrets = [str(secret.get("name")) for secret in fields.mappings(balancer.get("imagePullSecrets"))]
    options = {"operator-image": [images["agent"]], "balancer-image": [images["haproxy"]], "image-pull-secret": secrets}
    if placed := {
        key: balancer[key] for key in ("nodeSelector", "tolerations", "priorityClassName") if balancer.get(key)
    }:
        options["balancer-placement"] = [json.dumps(placed)]
    return options | ({"server-image": triton} if triton else {})


def _pod_of(deployment: Object | None) -> Object:
    spec = fields.mapping(fields.mapping(deployment).get("spec"))
    return fields.mapping(fields.mapping(spec.get("template")).get("spec"))


def _containers(pod: Object) -> list[Object]:
    return [*fields.mappings(pod.get("initContainers")), *fields.mappings(pod.get("containers"))]


def _site(options: Mapping[str, list[str]], balancer: Object | None) -> Site:
    images = {
        option: options.get(option, [f"registry.example.com/{image}:tag"])[0] for option, image in _IMAGES.items()
    }
    allowed = {option: tuple(filter(None, values[0].split(","))) for option, values in options.items() if values}
    return Site(
        operator_image=images["operator-image"],
        balancer_image=images["balancer-image"],
        server_image=images["server-image"],
        collector=_collector(balancer),
        pull_secrets=tuple(options.get("image-pull-secret", ())),
        balancers=_placement(options.get("balancer-placement", ["{}"])[0]),
        network=_network(options.get("network-policies", [""])[0]),
        port=int(options.get("port", ["10250"])[0]),
        service_annotations=allowed.get("service-annotations", SERVICE_ANNOTATIONS),
        model_pod_labels=allowed.get("model-pod-labels", ()),
        model_pod_annotations=allowed.get("model-pod-annotations", ()),
        fixed_user_ids="no-fixed-user-ids" not in options,
    )


def _placement(text: str) -> Placement:
    try:
        return Placement.model_validate_json(text)
    except ValueError:
        return Placement()


def _network(text: str) -> SiteNetwork | None:
    try:
        return SiteNetwork.model_validate_json(text)
    except ValueError:
        return None


def _collector(balancer: Object | None) -> CollectorAddress | None:
    """Return the collector's address from the balancers' plan, which is the only object with the CA certificate."""
    try:
        collector = json.loads(fields.mapping((balancer or {}).get("data"))[PLAN_KEY])["collector"]
        return CollectorAddress(**collector)
    except (KeyError, TypeError, ValueError):
        return None


def _metrics_api(reads: PermittedReads, resource: Object, options: Mapping[str, list[str]]) -> ExternalMetricsApi:
    """Return which component serves the external metrics API, from the model's status or else from the APIService."""
    scaling = fields.mapping(fields.mapping(resource.get("status")).get("scaling"))
    if (actuator := scaling.get("actuator")) in {"HPA", "Direct"}:
        return ExternalMetricsApi(
            ours=actuator == "HPA", why=str(scaling.get("actuatorReason")), tolerance=actuator == "HPA"
        )
    if "namespace" not in options or "watch-namespace" in options:
        return ExternalMetricsApi(ours=False, why="the server of external.metrics.k8s.io is unknown")
    try:
        api_service = fields.mapping(reads.cluster.find(kinds.API_SERVICE, _API_SERVICE))
    except ClusterError:
        reads.notes.append("you may not read the server of external.metrics.k8s.io: assumes Halcyon")
        return ExternalMetricsApi(ours=True, why="assumed", tolerance=True)
    target = fields.mapping(fields.mapping(api_service.get("spec")).get("service"))
    ours = (target.get("namespace"), target.get("name")) == (
        options["namespace"][0],
        options.get("service", ["halcyon"])[0],
    )
    return ExternalMetricsApi(ours=ours, why="as currently served", tolerance=ours)


def _live_source(reads: PermittedReads, document: Object) -> SourceState:
    """Return the state of the model's source in a cluster. An object that the user may not read is assumed to exist."""
    config_map_ref = fields.mapping(_source_of(document).get("configMap"))
    keys = [str(item.get("key")) for item in fields.mappings(config_map_ref.get("items"))]

    def config_map(name: str) -> Object | None:
        note = f"you may not read ConfigMap {name}: the name of its copy will differ"
        assumed: Object = {"data": dict.fromkeys(keys, "")}
        return reads.find(kinds.CONFIG_MAP, name, note, assumed)

    def claim(name: str) -> bool:
        note = f"you may not read PersistentVolumeClaim {name}: assumes that it exists"
        return reads.find(kinds.PERSISTENT_VOLUME_CLAIM, name, note, {}) is not None

    return _source(document, config_map, claim)[0]


def _source_of(document: Object) -> Object:
    return fields.mapping(fields.mapping(fields.mapping(document.get("spec")).get("model")).get("source"))


def _source(
    document: Object,
    config_map: Callable[[str], Object | None],
    claim: Callable[[str], bool],
    *,
    allow_missing: bool = False,
) -> tuple[SourceState, list[str]]:
    """Return the state of the model's source, and notes on assumptions about it."""
    source = _source_of(document)
    claim_name = fields.mapping(source.get("persistentVolumeClaim")).get("claimName")
    if claim_name is not None:
        return SourceState(
            missing="" if claim(str(claim_name)) else f"PersistentVolumeClaim {claim_name} doesn't exist"
        ), []
    config_map_ref = fields.mapping(source.get("configMap"))
    if not config_map_ref:
        return SourceState(), []
    keys = {str(item.get("key")) for item in fields.mappings(config_map_ref.get("items"))}
    source_object = config_map(str(config_map_ref.get("name")))
    if source_object is None and not allow_missing:
        return SourceState(missing=f"ConfigMap {config_map_ref.get('name')} doesn't exist"), []
    if source_object is None:
        content = revision.Content(data=dict.fromkeys(sorted(keys), ""), binary={})
        return SourceState(content=content), [
            f"ConfigMap {config_map_ref.get('name')} isn't in the file: the name of its copy will differ"
        ]
    data, binary = (fields.mapping(source_object.get(part)) for part in ("data", "binaryData"))
    if missing_keys := sorted(keys - {*data, *binary}):
        return SourceState(missing=f"ConfigMap {config_map_ref.get('name')} has no key {', '.join(missing_keys)}"), []
    used = ({k: str(v) for k, v in sorted(part.items()) if k in keys} for part in (data, binary))
    return SourceState(content=revision.Content(*used)), []


def _find_document(documents: Sequence[Object], kind: str, name: str) -> Object | None:
    return next(
        (o for o in documents if o.get("kind") == kind and fields.mapping(o.get("metadata")).get("name") == name), None
    )
