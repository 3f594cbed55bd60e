"""The accepted plan: what the controller asks of a model's balancers, as they find it in ConfigMap `NAME-balancer`.

The agent reads nothing else of the resource: not its spec, so an invalid spec can't reach it, and not the operator's
version. Standard library only: the agent's memory is a budget.

Operator and agents are not replaced in one moment: a field that a later version adds has a default, which is what agents of before
did without it, and one that this version doesn't know is left out.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

T = TypeVar("T")

PLAN_KEY = "plan.json"
"""Key of the ConfigMap's data that holds the plan."""
PLAN_VERSION = 1

HAPROXY_MEMORY_MIB = 512
"""Memory limit of the container that HAProxy runs in. What clients may hold of it at once follows from it."""

CERTIFICATE_FOLDER = "certificate"
"""Of a balancer pod, below /var/run/secrets: the Secret of `traffic.tls`. It is no part of the plan."""
CLIENTS_FOLDER = "clients"
"""The same for the authorities of clients."""
KEYS_FOLDER = "keys"
"""The same for `traffic.apiKeys`."""

_BROKEN = (KeyError, TypeError, AttributeError, RecursionError, UnicodeDecodeError, json.JSONDecodeError)


class PlanError(ValueError):
    """The document is not a plan that this version understands."""


@dataclass(frozen=True)
class Slot:
    """One set of servers: a Deployment of Triton pods behind a headless Service."""

    name: str
    """`a` or `b`."""
    service: str
    """Headless Service whose EndpointSlices list the pods."""
    weight: int
    """Share of the requests, 0 to 256 (HAProxy's unit)."""
    capacity: int
    """Most pods there can be (maxReplicas and surge): so many server lines are reserved."""


@dataclass(frozen=True)
class CollectorAddress:
    """Where observations go: every operator replica behind this name."""

    host: str
    """DNS name with one address per operator replica."""
    port: int
    server_name: str
    """Name that the certificate must carry."""
    ca_pem: str
    """CA that signed it."""


@dataclass(frozen=True)
class BalancerPlan:
    """Everything that a balancer needs to know about its model."""

    namespace: str
    name: str
    """Name of the ModelDeployment."""
    model: str
    """Name of the model in Triton: the only one whose routes are open."""
    slots: tuple[Slot, ...]
    max_connections: int
    """Most requests that one balancer process has in flight to one server, per protocol."""
    queue_limit: int
    """Most requests that wait in one balancer process, both protocols together."""
    request_timeout_ms: int
    """Longest wait in the queue, and longest time in a server."""
    drain_ms: int
    """How long a stopping server may still answer."""
    collector: CollectorAddress | None = None
    """None where nothing collects: the balancer works alone."""
    source_share: int = 100
    """Percent of `queue_limit` that the requests of one source address may take; 100 is no bound of its own."""
    sequences: bool = False
    """The model keeps a state between requests, so none may be computed twice."""
    sticky_header: str = ""
    """Header whose value binds requests to one pod, which keeps them while it drains; empty: none does."""
    max_request_bytes: int = 0
    """Largest request; 0 is no bound of the balancer's own."""
    access_log: str = "None"
    """Which requests are logged: None, Errors or All."""

    def to_json(self) -> str:
        """One line, keys sorted: equal plans are equal text. What is as agents of before took it for granted is left out."""
        raw = {"version": PLAN_VERSION, **asdict(self)}
        for name in _LATER:
            if raw[name] == getattr(BalancerPlan, name):
                del raw[name]
        return json.dumps(raw, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> BalancerPlan:
        """The plan in `text`.

        Raises:
            PlanError: where it is none, or of another version.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            version = raw.pop("version")
            if version != PLAN_VERSION:
                raise PlanError(f"plan has version {version}; this agent reads version {PLAN_VERSION}")
            slots = tuple(_made(Slot, slot) for slot in raw.pop("slots"))
            collector = raw.pop("collector")
            return _made(
                cls, {**raw, "slots": slots, "collector": _made(CollectorAddress, collector) if collector else None}
            )
        except _BROKEN as error:
            raise PlanError(f"not a balancer plan: {error}") from error


_LATER = ("source_share", "sequences", "sticky_header", "max_request_bytes", "access_log")
"""Fields that were added."""


def _made(kind: type[T], raw: dict[str, Any]) -> T:
    """Of the fields that this version knows."""
    known = kind.__dataclass_fields__  # type: ignore[attr-defined]  # only dataclasses are given
    return kind(**{name: value for name, value in raw.items() if name in known})
