"""The Services by which clients find servers that have no balancer of ours before them.

Not here: what those servers do for themselves (`channels`), routes of a Gateway (`routes`).
"""

from __future__ import annotations

from halcyon.api.spec import Spec
from halcyon.render import balancer, names
from halcyon.render.metadata import Object, child
from halcyon.render.site import Subject


def service(subject: Subject, spec: Spec) -> Object:
    """The Service of the ModelDeployment's name, on the ready servers themselves."""
    result = balancer.service(subject, spec)
    result["metadata"]["labels"] = names.labels(subject.name, names.SERVER)
    result["spec"]["selector"] = names.selector(subject.name, names.SERVER)
    return result


def headless(subject: Subject, spec: Spec) -> Object:
    """One DNS name with an address per ready server, for clients of gRPC that balance by themselves.

    Not a slot's Service: clients keep its name, and the slot of the servers may change.
    """
    result = child("v1", "Service", subject, names.headless(subject.name), names.SERVER)
    result["spec"] = {
        "clusterIP": "None",
        "selector": names.selector(subject.name, names.SERVER),
        "ports": balancer.service(subject, spec)["spec"]["ports"],
    }
    return result
