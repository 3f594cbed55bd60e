"""Balancer plan: the settings from the accepted spec for a model's balancers, stored in the ConfigMap `NAME-balancer`.

Agents read only the plan, not the ModelDeployment, so an invalid spec cannot affect them. The module uses only the
standard library, because the agent's memory is limited.

A field that was added in a later version has a default: the behaviour of agents that do not know it (see `codec`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from halcyon.api.documents import codec
from halcyon.api.documents.codec import NOT_A_DOCUMENT, UnknownVersionError, decoded

PLAN_KEY = "plan.json"
"""Key in the ConfigMap that contains the plan."""
PLAN_VERSION = 2

HAPROXY_MEMORY_MIB = 640
"""Memory limit of the HAProxy container, in MiB. It determines the limits on connections and requests of clients."""
READINESS_TIMEOUT_S = 2
"""Time within which a server pod must respond to a readiness probe of the kubelet or of HAProxy, in seconds."""

CERTIFICATE_FOLDER = "certificate"
"""Folder below /var/run/secrets in a balancer pod where the Secret named by `traffic.tls.secretName` is mounted."""
CLIENTS_FOLDER = "clients"
"""Folder below /var/run/secrets in a balancer pod where the Secret of `traffic.tls.clientCA` is mounted."""
KEYS_FOLDER = "keys"
"""Folder below /var/run/secrets in a balancer pod where the Secret of `traffic.apiKeys` is mounted."""
DRAIN_HEADER = "halcyon-drain"
"""HTTP header with a secret key. The agent rejects requests to `/drain` without it. The kubelet takes the key from the
pod's specification."""
LOWER_CLASS_HEADER = "halcyon-batch"
"""HTTP header or gRPC metadata that marks a request of batch inference, which has lower priority. Its value is the name
of the BatchInference. The capacity for batch inference is divided equally among a model's BatchInferences. Balancers
ignore the header if the plan's `lower_class` is `None`."""
ROWS_HEADER = "halcyon-batch-rows"
"""HTTP header or gRPC metadata with the number of rows in a request of batch inference, from 1 to 9999. If it is
missing, the number is 1."""
LowerClass = Literal["None", "Fill", "Gentle"]
"""Capacity that the balancers give to batch inference, whose requests have lower priority. `None`: no batch inference.
`Fill`: all capacity that other requests leave unused. `Gentle`: only so much that the latency of other requests stays
nearly the same."""


class PlanError(ValueError):
    """The document is not a balancer plan, or has a version that is not supported."""


@dataclass(frozen=True)
class Slot:
    """Slot: a Deployment of Triton pods behind a headless Service."""

    name: str
    """Name of the slot, `a` or `b`."""
    service: str
    """Name of the headless Service whose EndpointSlices list the slot's pods."""
    weight: int
    """Share of the requests that the slot receives, relative to the other slot: from 0 to 256, as in HAProxy."""
    capacity: int
    """Number of HAProxy servers in the slot; an upper bound on its pods (maxReplicas plus surge)."""


@dataclass(frozen=True)
class CollectorAddress:
    """Address of the collector, to which agents send reports, and the CA bundle with which they verify it."""

    host: str
    """DNS name that resolves to the addresses of all operator replicas."""
    port: int
    server_name: str
    """DNS name that the operator's serving certificate must contain."""
    ca_pem: str
    """CA bundle for the operator's serving certificate, in PEM."""


@dataclass(frozen=True)
class BalancerPlan:
    """Settings of a model's balancers."""

    namespace: str
    name: str
    """Name of the ModelDeployment."""
    model: str
    """Name of the model in Triton. Requests for other models are rejected."""
    slots: tuple[Slot, ...]
    max_connections: int
    """Maximum number of requests in progress from one balancer process to one server, for each protocol.

    Agents that support `max_concurrency` and `finds_concurrency` use this number only if neither of these fields
    applies.
    """
    queue_limit: int
    """Maximum number of requests that wait in one balancer process, HTTP and gRPC together."""
    queue_timeout_ms: int
    """Maximum time that a request waits for a server, in milliseconds."""
    response_timeout_ms: int
    """Maximum time until a server responds, in milliseconds."""
    drain_ms: int
    """Maximum time for a stopping server to finish its requests, in milliseconds."""
    collector: CollectorAddress | None = None
    """Address to which the agent sends reports; None if it sends none."""
    source_share: int = 100
    """Percentage of `queue_limit` that the requests of one source address may use; 100 means no limit per address."""
    sequences: bool = False
    """Whether the model keeps state between requests, so that requests must not be retried."""
    sticky_header: str = ""
    """Name of the HTTP header for sticky routing: requests with the same value go to the same pod. The value is empty
    if routing is not sticky."""
    max_request_bytes: int = 0
    """Maximum size of a request, in bytes; 0 means that the balancer sets no limit."""
    access_log: str = "None"
    """Requests that the balancer logs: `None`, `Errors` or `All`."""
    objective_ms: int = 0
    """Latency objective, in milliseconds. Under overload, requests that would miss it are rejected. If it is 0, no
    request is rejected for its latency."""
    max_batch: int = 0
    """Maximum number of rows in a batch; 0 if only the model's own configuration sets it."""
    instances: int = 1
    """Number of instances of the model in one server."""
    max_concurrency: int = 0
    """Maximum number of requests in progress at one server, counted over all balancers and both protocols. 0 means that
    the spec sets no maximum."""
    finds_concurrency: bool = False
    """Whether agents measure how many requests a server should process at once. They don't if Triton batches the
    model's requests."""
    balancers: int = 1
    """Number of balancers, among which the limits of each server are divided."""
    hold_timeout_ms: int = 0
    """Maximum time that a request waits while no server exists, in milliseconds; 0 if `queue_timeout_ms` applies."""
    lower_class: LowerClass = "None"
    """Capacity for the requests of batch inference; `None` unless a BatchInference of the model runs."""

    @property
    def longest_wait_ms(self) -> int:
        """Maximum time that a request waits for a server, in milliseconds."""
        return max(self.queue_timeout_ms, self.hold_timeout_ms)

    @property
    def shares_pods(self) -> bool:
        """Whether all balancers together share one limit on the requests in progress at each server."""
        return self.max_concurrency > 0 or self.finds_concurrency or self.objective_ms > 0

    @property
    def exchanges_loads(self) -> bool:
        """Whether the balancers send each other the numbers of their requests in progress."""
        return self.shares_pods or self.has_lower_class

    @property
    def has_lower_class(self) -> bool:
        """Whether requests of batch inference are admitted, with lower priority than the other requests."""
        return self.lower_class != "None"

    def to_json(self) -> str:
        """Return the plan as one line of JSON. The keys are sorted, so that equal plans have equal text.

        Fields that were added after the first version are omitted if they have their default value.
        """
        unset = frozenset(name for name in _LATER if getattr(self, name) == getattr(BalancerPlan, name))
        return codec.encoded(self, PLAN_VERSION, leave_out=unset, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> BalancerPlan:
        """Parse a plan.

        Raises:
            PlanError: the text is not a balancer plan, or has a version that is not supported.
        """
        try:
            raw = codec.fields_of(text, PLAN_VERSION)
            slots = tuple(decoded(Slot, slot) for slot in raw.pop("slots"))
            collector = raw.pop("collector")
            return decoded(
                cls, {**raw, "slots": slots, "collector": decoded(CollectorAddress, collector) if collector else None}
            )
        except UnknownVersionError as error:
            raise PlanError(f"plan has {error}; this agent reads version {PLAN_VERSION}") from error
        except NOT_A_DOCUMENT as error:
            raise PlanError(f"not a valid balancer plan: {error}") from error


_LATER = (
    *("source_share", "sequences", "sticky_header", "max_request_bytes", "access_log"),
    *("max_concurrency", "finds_concurrency", "objective_ms", "max_batch", "instances", "balancers"),
    *("hold_timeout_ms", "lower_class"),
)
"""Names of the plan's fields that were added after its first version."""
