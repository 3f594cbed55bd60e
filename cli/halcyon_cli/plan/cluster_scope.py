"""What a reconcile would see of a ModelDeployment that isn't applied yet: read from a cluster by a person's rights, or made up off line.

Whatever may not be read is named in `notes`. Not here: what follows from it (`children`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from halcyon.api.documents.balancer_plan import PLAN_KEY, CollectorAddress
from halcyon.api.policy.network import SiteNetwork
from halcyon.api.spec.runtime import Placement
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

Object = Mapping[str, Any]
UNKNOWN_UID = "00000000-0000-0000-0000-000000000000"
_OPERATOR = "app.kubernetes.io/name=halcyon"
_SERVES = "v1beta1.external.metrics.k8s.io"
_IMAGES = {"operator-image": "operator", "balancer-image": "balancer", "server-image": "tritonserver"}


@dataclass(frozen=True)
class PlannedScope:
    """A view, and what to know of it."""

    view: Scope
    notes: tuple[str, ...] = ()


def offline(document: Object, beside: Sequence[Object]) -> PlannedScope:
    """Of a new model in a cluster where Halcyon serves the metrics API; `beside` are other objects of the file."""
    namespace = str(fields.mapping(document.get("metadata")).get("namespace") or "default")
    source, missing = _source(document, lambda name: _among(beside, "ConfigMap", name), lambda _: True, made_up=True)
    notes = ["off line: a new model, images by placeholders, and Halcyon serves external.metrics.k8s.io", *missing]
    api = ExternalMetricsApi(ours=True, why="off line", tolerance=True)
    made = {
        **document,
        "metadata": {**document["metadata"], "namespace": namespace, "uid": UNKNOWN_UID, "generation": 1},
    }
    return PlannedScope(Scope(made, _site({}, None), {}, source=source, metrics_api=api), tuple(notes))


def online(cluster: Cluster, document: Object) -> PlannedScope:
    """Of a model as it would be in this cluster, and of what is there of it.

    Raises:
        ClusterError: the API server would not take it, or can't be asked.
    """
    name, notes = str(document["metadata"]["name"]), list[str]()
    live = cluster.find(kinds.MODEL_DEPLOYMENT, name)
    resource = _tried(cluster, name, document, live, notes)
    given = _options(cluster)
    asked = (*CHILDREN, *kinds.ROUTES, *(kinds.WALLS if "network-policies" in given else ()))
    found = _children(cluster, name, asked, notes) if live is not None else {}
    for kind, needed in every_child(name):
        if kind not in asked:
            continue
        # Somebody else's may have the name; it bears no label of ours.
        if (kind, needed) not in found and (there := _readable(cluster, kind, needed, notes)) is not None:
            found[kind, needed] = there
    records = [obj for (kind, _), obj in found.items() if kind is kinds.CONTROLLER_REVISION]
    given = given or _from_what_is_there(found, name)
    if not given:
        notes.append(
            "the operator's Deployment can't be seen by you, and nothing of the model is there: images are placeholders"
        )
    selector = f"{names.OWNER_LABEL}={name},{names.COMPONENT_LABEL}={names.SERVER}"
    servers = cluster.items(kinds.POD, selector=selector) or [] if live is not None else []
    source, _ = _source(
        document,
        lambda wanted: cluster.find(kinds.CONFIG_MAP, wanted),
        lambda wanted: cluster.find(kinds.PERSISTENT_VOLUME_CLAIM, wanted) is not None,
    )
    view = Scope(
        resource=dict(resource),
        site=_site(given, found.get((kinds.CONFIG_MAP, names.balancer(name)))),
        children={where: dict(obj) for where, obj in found.items()},
        revisions=tuple(r for r in map(revision.read, records) if r is not None),
        config_maps=tuple(n for (kind, n), obj in found.items() if kind is kinds.CONFIG_MAP and obj.get("immutable")),
        pods=tuple(pods.project(dict(pod)) for pod in servers),
        source=source,
        metrics_api=_metrics_api(cluster, resource, given, notes),
        gateway_api=all(cluster.items(kind) is not None for kind in kinds.ROUTES),
    )
    return PlannedScope(view, tuple(dict.fromkeys(notes)))


def _tried(cluster: Cluster, name: str, document: Object, live: Object | None, notes: list[str]) -> Object:
    """The ModelDeployment as the API server would store it."""
    if live is None:
        body = {**document, "metadata": {**document["metadata"], "namespace": cluster.namespace}}
        made = cluster.dry_run("POST", kinds.MODEL_DEPLOYMENT, "", body)
    else:
        spec = dict(document["spec"])
        if "replicas" not in spec and "replicas" in live["spec"]:
            spec["replicas"] = live["spec"]["replicas"]  # whoever scales has written it, and applying leaves it
        body = {**live, "spec": spec}
        made = cluster.dry_run("PUT", kinds.MODEL_DEPLOYMENT, name, body)
    if made is not None:
        return made
    notes.append("the API server wasn't asked what it makes of the ModelDeployment: you may not write it")
    meta = {"namespace": cluster.namespace, "name": name, "uid": UNKNOWN_UID, "generation": 1}
    return {**body, "metadata": meta | dict(fields.mapping(body.get("metadata")))}


def _children(cluster: Cluster, name: str, asked: Sequence[Kind], notes: list[str]) -> dict[tuple[Kind, str], Object]:
    found: dict[tuple[Kind, str], Object] = {}
    for kind in asked:
        try:
            items = cluster.items(kind, selector=f"{names.OWNER_LABEL}={name}") or []
        except ClusterError:
            notes.append(f"{kind.plural} may not be read by you: what is there of them is taken for absent")
            continue
        found |= {(kind, str(obj["metadata"]["name"])): obj for obj in items}
    return found


def _readable(cluster: Cluster, kind: Kind, name: str, notes: list[str]) -> Object | None:
    try:
        return cluster.find(kind, name)
    except ClusterError:
        notes.append(f"{kind.plural} may not be read by you: what is there of them is taken for absent")
        return None


def _options(cluster: Cluster) -> dict[str, list[str]]:
    """Options that the operator runs with, and its namespace as `namespace`; empty where it can't be seen."""
    try:
        operators = cluster.items(kinds.DEPLOYMENT, selector=_OPERATOR, everywhere=True) or []
    except ClusterError:
        operators = []
    for one in operators:
        for container in _containers(_pod_of(one)):
            found: dict[str, list[str]] = {}
            for argument in map(str, fields.sequence(container.get("args"))):
                option, _, value = argument.removeprefix("--").partition("=")
                found.setdefault(option, []).append(value)
            if "operator-image" in found:
                return found | {"namespace": [str(fields.mapping(one.get("metadata")).get("namespace"))]}
    return {}


def _from_what_is_there(found: Mapping[tuple[Kind, str], Object], name: str) -> dict[str, list[str]]:
    """The same options, as far as the model's own pods tell them; empty where it has none."""
    balancer = _pod_of(found.get((kinds.DEPLOYMENT, names.balancer(name))))
    servers = next(
        (p for slot in names.SLOTS if (p := _pod_of(found.get((kinds.DEPLOYMENT, names.server(name, slot)))))), {}
    )
    images = {str(c.get("name")): str(c.get("image")) for c in _containers(balancer)}
    if not {"agent", "haproxy"} <= images.keys():
        return {}
    triton = [str(c.get("image")) for c in _containers(servers) if c.get("name") == "triton"]
    secrets = [str(secret.get("name")) for secret in fields.mappings(balancer.get("imagePullSecrets"))]
    told = {"operator-image": [images["agent"]], "balancer-image": [images["haproxy"]], "image-pull-secret": secrets}
    if placed := {
        key: balancer[key] for key in ("nodeSelector", "tolerations", "priorityClassName") if balancer.get(key)
    }:
        told["balancer-placement"] = [json.dumps(placed)]
    return told | ({"server-image": triton} if triton else {})


def _pod_of(deployment: Object | None) -> Object:
    spec = fields.mapping(fields.mapping(deployment).get("spec"))
    return fields.mapping(fields.mapping(spec.get("template")).get("spec"))


def _containers(pod: Object) -> list[Object]:
    return [*fields.mappings(pod.get("initContainers")), *fields.mappings(pod.get("containers"))]


def _site(given: Mapping[str, list[str]], balancer: Object | None) -> Site:
    images = {option: given.get(option, [f"registry.example.com/{image}:tag"])[0] for option, image in _IMAGES.items()}
    allowed = given.get("service-annotations")
    return Site(
        operator_image=images["operator-image"],
        balancer_image=images["balancer-image"],
        server_image=images["server-image"],
        collector=_collector(balancer),
        pull_secrets=tuple(given.get("image-pull-secret", ())),
        balancers=_placement(given.get("balancer-placement", ["{}"])[0]),
        network=_network(given.get("network-policies", [""])[0]),
        port=int(given.get("port", ["10250"])[0]),
        service_annotations=SERVICE_ANNOTATIONS if allowed is None else tuple(filter(None, allowed[0].split(","))),
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
    """Where agents send to, as the balancers have been told; its certificate is known to nobody else."""
    try:
        told = json.loads(fields.mapping((balancer or {}).get("data"))[PLAN_KEY])["collector"]
        return CollectorAddress(**told)
    except (KeyError, TypeError, ValueError):
        return None


def _metrics_api(
    cluster: Cluster, resource: Object, given: Mapping[str, list[str]], notes: list[str]
) -> ExternalMetricsApi:
    """As the operator has found it, else as it would."""
    told = fields.mapping(fields.mapping(resource.get("status")).get("scaling"))
    if (actuator := told.get("actuator")) in {"HPA", "Direct"}:
        return ExternalMetricsApi(
            ours=actuator == "HPA", why=str(told.get("actuatorReason")), tolerance=actuator == "HPA"
        )
    if "namespace" not in given or "watch-namespace" in given:
        return ExternalMetricsApi(ours=False, why="who serves external.metrics.k8s.io isn't known")
    try:
        found = fields.mapping(cluster.find(kinds.API_SERVICE, _SERVES))
    except ClusterError:
        notes.append("who serves external.metrics.k8s.io can't be seen by you: it is taken for Halcyon")
        return ExternalMetricsApi(ours=True, why="not seen", tolerance=True)
    target = fields.mapping(fields.mapping(found.get("spec")).get("service"))
    ours = (target.get("namespace"), target.get("name")) == (
        given["namespace"][0],
        given.get("service", ["halcyon"])[0],
    )
    return ExternalMetricsApi(ours=ours, why="as it is served now", tolerance=ours)


def _source(
    document: Object,
    config_map: Callable[[str], Object | None],
    claim: Callable[[str], bool],
    *,
    made_up: bool = False,
) -> tuple[SourceState, list[str]]:
    """The model's source, and what is to be said where it was made up."""
    source = fields.mapping(fields.mapping(fields.mapping(document.get("spec")).get("model")).get("source"))
    claimed = fields.mapping(source.get("persistentVolumeClaim")).get("claimName")
    if claimed is not None:
        return SourceState(missing="" if claim(str(claimed)) else f"PersistentVolumeClaim {claimed} doesn't exist"), []
    given = fields.mapping(source.get("configMap"))
    if not given:
        return SourceState(), []
    keys = {str(item.get("key")) for item in fields.mappings(given.get("items"))}
    found = config_map(str(given.get("name")))
    if found is None and not made_up:
        return SourceState(missing=f"ConfigMap {given.get('name')} doesn't exist"), []
    if found is None:
        content = revision.Content(data=dict.fromkeys(sorted(keys), ""), binary={})
        return SourceState(content=content), [
            f"ConfigMap {given.get('name')} isn't there: the copy of it has another name then"
        ]
    data, binary = (fields.mapping(found.get(part)) for part in ("data", "binaryData"))
    if lacking := sorted(keys - {*data, *binary}):
        return SourceState(missing=f"ConfigMap {given.get('name')} has no key {', '.join(lacking)}"), []
    wanted = ({k: str(v) for k, v in sorted(part.items()) if k in keys} for part in (data, binary))
    return SourceState(content=revision.Content(*wanted)), []


def _among(beside: Sequence[Object], kind: str, name: str) -> Object | None:
    return next(
        (o for o in beside if o.get("kind") == kind and fields.mapping(o.get("metadata")).get("name") == name), None
    )
