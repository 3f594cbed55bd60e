"""The accepted plan: the controller's settings for a model's balancers, stored in ConfigMap `NAME-balancer`.

The agent does not read the ModelDeployment: neither its spec, so an invalid spec cannot reach it, nor the operator's
version. Standard library only: the agent's memory is a budget.

A field that a later version adds has a default, which is the behaviour of agents without the field (`codec`).
"""

from __future__ import annotations

from dataclasses import dataclass

from halcyon.api.documents import codec
from halcyon.api.documents.codec import NOT_A_DOCUMENT, UnknownVersionError, made

PLAN_KEY = "plan.json"
"""Key of the ConfigMap's data that holds the plan."""
PLAN_VERSION = 2

HAPROXY_MEMORY_MIB = 512
"""Memory limit of the HAProxy container. It determines how much clients may hold of it at once."""

CERTIFICATE_FOLDER = "certificate"
"""Folder in a balancer pod, below /var/run/secrets, with the Secret of `traffic.tls`. It is not part of the plan."""
CLIENTS_FOLDER = "clients"
"""Folder with the certificate authorities of clients, in the same place."""
KEYS_FOLDER = "keys"
"""Folder with the Secret of `traffic.apiKeys`, in the same place."""


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
    """Maximum number of pods (maxReplicas and surge): the number of HAProxy servers that are reserved."""


@dataclass(frozen=True)
class CollectorAddress:
    """Address that reports are sent to: every operator replica behind this name."""

    host: str
    """DNS name with one address per operator replica."""
    port: int
    server_name: str
    """Name that the certificate must contain."""
    ca_pem: str
    """CA that signed the certificate, in PEM."""


@dataclass(frozen=True)
class BalancerPlan:
    """All settings of a model's balancers."""

    namespace: str
    name: str
    """Name of the ModelDeployment."""
    model: str
    """Name of the model in Triton. Only its routes are open."""
    slots: tuple[Slot, ...]
    max_connections: int
    """Maximum number of requests in flight from one balancer process to one server, per protocol."""
    queue_limit: int
    """Maximum number of requests that wait in one balancer process, both protocols together."""
    queue_timeout_ms: int
    """Maximum time that a request waits for a server."""
    response_timeout_ms: int
    """Maximum time that a server has to respond."""
    drain_ms: int
    """Time that a stopping server has to finish its requests."""
    collector: CollectorAddress | None = None
    """None if nothing collects reports: the balancer works alone."""
    source_share: int = 100
    """Percentage of `queue_limit` that the requests of one source address may use; 100 means no limit per address."""
    sequences: bool = False
    """Whether the model keeps state between requests, so that no request may be computed twice."""
    sticky_header: str = ""
    """Header whose value binds requests to one pod, even while it drains; empty if no header does."""
    max_request_bytes: int = 0
    """Maximum size of a request; 0 means no limit in the balancer."""
    access_log: str = "None"
    """Requests that are logged: None, Errors or All."""

    def to_json(self) -> str:
        """Return the plan on one line with sorted keys, so that equal plans are equal text.

        Later fields are left out if they have the value that earlier agents assume.
        """
        unset = frozenset(name for name in _LATER if getattr(self, name) == getattr(BalancerPlan, name))
        return codec.encoded(self, PLAN_VERSION, leave_out=unset, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> BalancerPlan:
        """Return the plan in `text`.

        Raises:
            PlanError: the text is not a plan, or has another version.
        """
        try:
            raw = codec.fields_of(text, PLAN_VERSION)
            slots = tuple(made(Slot, slot) for slot in raw.pop("slots"))
            collector = raw.pop("collector")
            return made(
                cls, {**raw, "slots": slots, "collector": made(CollectorAddress, collector) if collector else None}
            )
        except UnknownVersionError as error:
            raise PlanError(f"plan has {error}; this agent reads version {PLAN_VERSION}") from error
        except NOT_A_DOCUMENT as error:
            raise PlanError(f"not a valid balancer plan: {error}") from error


_LATER = ("source_share", "sequences", "sticky_header", "max_request_bytes", "access_log")
"""Fields that were added after the first version."""
