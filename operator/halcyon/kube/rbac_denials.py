"""Missing permissions of the operator as RBAC rules, from the messages of 403 responses, for the log and /metrics.

The client reports every 403 response and, while a permission is missing, every other response. A permission counts as
missing once a 403 names it, until the same request is authorized, or until `DENIAL_TTL_S` after the last such 403. A
403 from admission, a policy or a quota names no permission; the `Accepted` condition reports it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from halcyon.monitoring.operator_metrics import PERMISSIONS_MISSING

log = logging.getLogger(__name__)

DENIAL_TTL_S = 900.0
"""Time for which a permission counts as missing after the last 403 that names it, in seconds."""
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
# `pods is forbidden: User "..." cannot list resource "pods" in API group "" at the cluster scope`
_CANNOT = re.compile(r'cannot (\w+) resource "([^"]+)" in API group "([^"]*)"')
# `... is attempting to grant RBAC permissions not currently held:\n{APIGroups:["x"], Resources:["y"], Verbs:["get" "list"]}`
_NOT_HELD = "permissions not currently held"
_RULE = re.compile(r"\{APIGroups:\[([^\]]*)\], Resources:\[([^\]]*)\][^}]*Verbs:\[([^\]]*)\]")
_WORD = re.compile(r'"([^"]*)"')


@dataclass(frozen=True, order=True)
class Right:
    """Permission, in the form of a rule in a Role."""

    group: str
    """API group of the permission; empty for the core group."""
    resource: str
    """Resource to which the permission applies, with its subresource, for example `pods/eviction`."""
    verb: str


@dataclass(frozen=True)
class _Request:
    """Type of a request.

    It doesn't include the name of the object, because a permission in a namespace covers all objects there.
    """

    namespace: str
    right: Right


@dataclass
class _Lack:
    rights: tuple[Right, ...]
    at: float


def named(message: str) -> tuple[Right, ...]:
    """Return the permissions that the message of a 403 response names as missing.

    The result is empty if the response has another cause.
    """
    rights = [Right(group, resource, verb) for verb, resource, group in _CANNOT.findall(message)]
    if _NOT_HELD in message:
        # The operator may not grant a rule that it does not have itself.
        for rule in _RULE.findall(message):
            groups, resources, verbs = (_WORD.findall(part) for part in rule)
            rights += [Right(g, r, v) for g in groups for r in resources for v in verbs]
    return tuple(rights)


def needed_right(method: str, path: str, *, watching: bool) -> tuple[str, Right]:
    """Return the namespace of a request and the permission that it needs.

    `path` begins with `/api/v1/` or `/apis/GROUP/VERSION/`.
    """
    parts = path.strip("/").split("/")
    group, names = ("", parts[2:]) if parts[0] == "api" else (parts[1] if len(parts) > 1 else "", parts[3:])
    namespace = ""
    if len(names) > 2 and names[0] == "namespaces":
        namespace, names = names[1], names[2:]
    plural, name, *sub = [*names, "", ""][: max(len(names), 2)]
    verb = _VERBS.get(method) or ("watch" if watching else "get" if name else "list")
    return namespace, Right(group, "/".join([plural, *sub]), verb)


@dataclass
class RbacDenials:
    """Record of the permissions that the operator lacks now."""

    clock: Callable[[], float]
    """Function that returns the monotonic time, in seconds."""
    _lacks: dict[_Request, _Lack] = field(default_factory=dict)

    def refused(self, method: str, path: str, message: str, *, watching: bool = False) -> None:
        """Record a 403 response."""
        rights = named(message)
        if not rights:
            return
        request = _Request(*needed_right(method, path, watching=watching))
        previous = self._lacks.get(request)
        self._lacks[request] = _Lack(rights, self.clock())
        if previous is None or previous.rights != rights:
            for right in rights:
                log.warning(
                    "a permission is missing: add the rules of the chart's role to the operator's role",
                    extra={**_log_fields(right), "namespace": request.namespace},
                )

    def answered(self, method: str, path: str, *, watching: bool = False) -> None:
        """Record a response other than 403, which proves that the request is authorized."""
        if not self._lacks:
            return
        lack = self._lacks.pop(_Request(*needed_right(method, path, watching=watching)), None)
        for right in lack.rights if lack else ():
            log.info("a missing permission has been granted", extra=_log_fields(right))

    @property
    def missing(self) -> tuple[Right, ...]:
        """Missing permissions, sorted, without duplicates."""
        now = self.clock()
        self._lacks = {request: lack for request, lack in self._lacks.items() if now - lack.at <= DENIAL_TTL_S}
        return tuple(sorted({right for lack in self._lacks.values() for right in lack.rights}))


class RbacDenialsPage(Collector):
    """Prometheus collector for the missing permissions."""

    def __init__(self, rights: RbacDenials) -> None:
        """Create the collector. At each scrape, it reads the missing permissions from `rights`."""
        self._rights = rights

    @override
    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            PERMISSIONS_MISSING.name, PERMISSIONS_MISSING.meaning, labels=PERMISSIONS_MISSING.labels
        )
        for right in self._rights.missing:
            family.add_metric((right.group, right.resource, right.verb), 1)
        yield family


def _log_fields(right: Right) -> dict[str, str]:
    return {"group": right.group, "resource": right.resource, "verb": right.verb}
