"""Services for clients that reach the servers without a balancer.

Out of scope: connection settings of those servers (`grpc_keepalive`), routes of a Gateway (`gateway_routes`).
"""

from __future__ import annotations

from halcyon.api.spec import Spec
from halcyon.render import balancer, names
from halcyon.render.metadata import Object, child
from halcyon.render.site import Subject


def service(subject: Subject, spec: Spec) -> Object:
    """Build the Service with the ModelDeployment's name, which selects the servers themselves."""
    result = balancer.service(subject, spec)
    result["metadata"]["labels"] = names.labels(subject.name, names.SERVER)
    result["spec"]["selector"] = names.selector(subject.name, names.SERVER)
    return result


def headless(subject: Subject, spec: Spec) -> Object:
    """Build a headless Service: one DNS name with an address per ready server, for gRPC clients that balance by themselves.

    It isn't a slot's Service: clients keep its name, while the servers may change slots.
    """
    result = child("v1", "Service", subject, names.headless(subject.name), names.SERVER)
    result["spec"] = {
        "clusterIP": "None",
        "selector": names.selector(subject.name, names.SERVER),
        "ports": balancer.service(subject, spec)["spec"]["ports"],
    }
    return result
