"""Detection of routes of two models that match the same requests at a Gateway. One model receives all of them. Pure.

The Gateway API defines that the older route wins (matching precedence in HTTPRouteRule and GRPCRouteRule). If both were
created in the same second, the route whose namespace/name sorts first wins. A more specific hostname wins over a less
specific one. That is no conflict, because it lets a model have its own hostname beside a default for all others.

In gRPC the name of the model is in the message, where no route can match it. Two models therefore need different
hostnames or listeners.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Key
from halcyon.render import names

_MODEL = "/v2/models/"
_ANY = "*"


def key(route: Object) -> Key:
    """Return the key of the ModelDeployment to which the route belongs."""
    meta = route["metadata"]
    return Key(str(meta["namespace"]), str((meta.get("labels") or {}).get(names.OWNER_LABEL)))


def gateways(route: Object) -> set[Key]:
    """Return the Gateways to which the route is attached."""
    return {gateway for gateway, _ in _parents(route)}


def shared_requests(route: Object, other: Object) -> str:
    """Return a description of the requests that both routes match; empty if there are none."""
    if route["kind"] != other["kind"] or not _share_listener(route, other):
        return ""
    shared = _hostnames(route) & _hostnames(other)
    if not shared:
        return ""
    hostnames = "every hostname of the listener" if shared == {_ANY} else ", ".join(sorted(shared))
    if route["kind"] == kinds.GRPC_ROUTE.kind:
        return f"gRPC at {hostnames}"
    models = sorted(_models(route) & _models(other))
    return f"{_MODEL}{models[0]} at {hostnames}" if models else ""


def winner(route: Object, others: Iterable[Object]) -> tuple[Object, str] | None:
    """Return the older route that takes precedence over `route` for some requests, and a message about them.

    Return None if there is no such route.
    """
    age = _age(route)
    for other in sorted(others, key=_age):
        if _age(other) < age and (requests := shared_requests(route, admitted(other))):
            return other, requests
    return None


def admitted(route: Object) -> Object:
    """Return a route without the Gateways and listeners that have rejected it, so that it gets no requests there."""
    generation = int(route["metadata"].get("generation") or 0)
    rejected = [
        _parent(entry.get("parentRef") or {}, route)
        for entry in (route.get("status") or {}).get("parents") or ()
        for condition in entry.get("conditions") or ()
        if (condition.get("type"), condition.get("status")) == ("Accepted", "False")
        and int(condition.get("observedGeneration") or generation) >= generation
    ]
    parents = [parent for parent in route["spec"].get("parentRefs") or () if _parent(parent, route) not in rejected]
    return {**route, "spec": {**route["spec"], "parentRefs": parents}}


def _age(route: Object) -> tuple[str, str, str]:
    meta = route["metadata"]
    return str(meta.get("creationTimestamp") or "9"), str(meta["namespace"]), str(meta["name"])


def _parents(route: Object) -> Iterator[tuple[Key, str]]:
    """Yield each Gateway of a route, with the name of the listener. An empty name means all listeners."""
    for parent in route["spec"].get("parentRefs") or ():
        yield _parent(parent, route)


def _parent(reference: Object, route: Object) -> tuple[Key, str]:
    namespace = reference.get("namespace") or route["metadata"]["namespace"]
    return Key(str(namespace), str(reference["name"])), str(reference.get("sectionName") or "")


def _share_listener(route: Object, other: Object) -> bool:
    return any(
        gateway == other_gateway and (not listener or not other_listener or listener == other_listener)
        for gateway, listener in _parents(route)
        for other_gateway, other_listener in _parents(other)
    )


def _hostnames(route: Object) -> set[str]:
    return set(map(str, route["spec"].get("hostnames") or (_ANY,)))


def _models(route: Object) -> set[str]:
    """Return the names of the models whose requests a route matches.

    Paths without a model's name, such as that of server readiness, are ignored, because the routes of all models match
    them.
    """
    matches: Iterable[Any] = (match for rule in route["spec"].get("rules") or () for match in rule.get("matches") or ())
    paths = (str((match.get("path") or {}).get("value") or "") for match in matches)
    return {path.removeprefix(_MODEL).partition("/")[0] for path in paths if path.startswith(_MODEL)}
