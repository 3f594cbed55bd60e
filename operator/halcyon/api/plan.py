"""The accepted plan: what the controller asks of a model's balancers, as they find it in ConfigMap `NAME-balancer`.

The agent reads nothing else of the resource: not its spec, so an invalid spec can't reach it, and not the operator's
version. Standard library only: the agent's memory is a budget.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

PLAN_KEY = "plan.json"
"""Key of the ConfigMap's data that holds the plan."""
PLAN_VERSION = 1


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
class Collector:
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
    collector: Collector | None = None
    """None where nothing collects: the balancer works alone."""

    def to_json(self) -> str:
        """One line, keys sorted: equal plans are equal text."""
        return json.dumps({"version": PLAN_VERSION, **asdict(self)}, sort_keys=True, separators=(",", ":"))

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
            slots = tuple(Slot(**slot) for slot in raw.pop("slots"))
            collector = raw.pop("collector")
            return cls(**raw, slots=slots, collector=Collector(**collector) if collector else None)
        except _BROKEN as error:
            raise PlanError(f"not a balancer plan: {error}") from error
