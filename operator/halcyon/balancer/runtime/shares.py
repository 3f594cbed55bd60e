"""Division of a pod's maximum number of requests in progress among the model's balancers and protocols. Pure.

HAProxy limits the requests in progress per server of a back end (`maxconn`), so every pod has a separate limit in each
balancer and for each protocol. Each agent computes its own limits from the loads that all agents publish. The limits,
called shares here, are proportional to the demand. A share grows only by the amount that other shares have released.
"""

# demand                  | limit for a pod
# no balancer has any     | an equal share of the bound
# some have               | those: a share in proportion to their demand; the others: 1
# a share grows           | only into what the others have released, so the limits in force never add up to more than the bound
# a share is below 1      | 1, because HAProxy takes 0 as unlimited; each balancer and protocol may thus exceed the bound by one request

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import chain, repeat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ByProtocol = tuple[float, float]
"""Pair of numbers: the first for HTTP, the second for gRPC."""
HALF_LIFE_S: Final = 4.0
"""Half-life of the demand of an idle balancer, in seconds. It keeps short gaps between requests from changing the
shares."""
MIN_DEMAND: Final = 0.5
"""Demand, in requests, below which a balancer counts as idle for a protocol."""
MAX_BYTES: Final = 512 * 1024
"""Maximum size of the document with a balancer's load, in bytes. Each pod adds about 60 bytes."""
GOLDEN: Final = 0.6180339887
"""Fractional part of the golden ratio, whose multiples are spread evenly modulo 1."""


class LoadError(ValueError):
    """Error raised if a string is not a document with the load of a balancer (`BalancerLoad`)."""


@dataclass(frozen=True)
class PodLoad:
    """Load that one balancer puts on one pod. Each pair of numbers is (HTTP, gRPC)."""

    inflight: tuple[int, int]
    """Number of requests in progress at the pod."""
    limits: tuple[int, int]
    """Current limits on the requests in progress at the pod."""
    answered: int = 0
    """Total requests that have ended (counter), for both protocols together."""

    @property
    def held(self) -> tuple[int, int]:
        """Part of the pod's maximum concurrency that the balancer uses or may use at any moment.

        A limit of 1 counts only while it is used.
        """
        http, grpc = (
            max(limit if limit > 1 else 0, used) for limit, used in zip(self.limits, self.inflight, strict=True)
        )
        return http, grpc


_IDLE = PodLoad((0, 0), (1, 1))


@dataclass(frozen=True)
class BalancerLoad:
    """Load of one balancer, which its agent publishes to the other balancers of the model."""

    agent: str
    """Name of the balancer pod."""
    demand: Mapping[str, ByProtocol] = field(default_factory=dict)
    """Number of requests that wait or are in progress, by slot. After a peak, the number decays with the half-life
    `HALF_LIFE_S`."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """Number of requests that wait now, by slot."""
    pods: Mapping[str, PodLoad] = field(default_factory=dict)
    """Load of each pod in use, by its IP address."""
    found: Mapping[str, int] = field(default_factory=dict)
    """Maximum concurrency of a pod for each revision, as measured or adopted by this agent."""
    users_rps: float = 0.0
    """Rate of users' requests per second, not counting those of batch inference; 0 if there is no batch inference."""
    lower: int = 0
    """Number of requests of batch inference that wait or are in progress."""
    lower_sent: int = 0
    """Number of requests of batch inference in progress, which `demand` and `pods` include."""
    late: int = 0
    """Number of late requests that wait behind all others. `demand` includes them, `waiting` does not."""

    @property
    def inflight(self) -> int:
        """Number of requests in progress at all pods."""
        return sum(sum(pod.inflight) for pod in self.pods.values())

    def to_json(self) -> str:
        """Return the load of the balancer as one line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> BalancerLoad:
        """Parse the document with a balancer's load.

        Raises:
            LoadError: the text is not a document with a load.
        """
        try:
            raw = json.loads(text)
            return cls(
                str(raw["agent"]),
                {str(slot): (_finite(pair[0]), _finite(pair[1])) for slot, pair in raw["demand"].items()},
                {str(slot): int(count) for slot, count in raw["waiting"].items()},
                {
                    str(address): PodLoad(_pair(pod["inflight"]), _pair(pod["limits"]), int(pod["answered"]))
                    for address, pod in raw["pods"].items()
                },
                {str(revision): int(bound) for revision, bound in raw["found"].items()},
                # An older agent has no lower class.
                _finite(raw.get("users_rps", 0.0)),
                int(raw.get("lower", 0)),
                int(raw.get("lower_sent", 0)),
                int(raw.get("late", 0)),
            )
        except (ValueError, OverflowError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
            raise LoadError(f"not the load of a balancer: {error!r}") from error


@dataclass(frozen=True)
class Elsewhere:
    """Requests of users in a model's other balancers."""

    waiting: int = 0
    """Number of requests that wait, without late ones."""
    inflight: int = 0
    """Number of requests in progress at pods."""
    late: int = 0
    """Number of late requests that wait behind all others."""

    @property
    def present(self) -> int:
        """Number of requests that wait or are in progress, without late ones."""
        return self.waiting + self.inflight


def _finite(raw: float) -> float:
    if not math.isfinite(number := float(raw)):
        raise ValueError(f"{number} is not finite")
    return number


def _pair(raw: Sequence[int]) -> tuple[int, int]:
    return int(raw[0]), int(raw[1])


def decayed(before: ByProtocol, now: ByProtocol, *, lasted_s: float, half_life_s: float = HALF_LIFE_S) -> ByProtocol:
    """Return the demand for each protocol.

    It is the larger of the current demand and the earlier demand, which is halved every `half_life_s`.
    """
    left = 0.5 ** (max(lasted_s, 0.0) / half_life_s)
    return max(now[0], before[0] * left), max(now[1], before[1] * left)


def pod_limits(
    bounds: Mapping[str, int], slot: str, own: BalancerLoad, others: Iterable[BalancerLoad], *, unknown: int = 0
) -> dict[str, tuple[int, int]]:
    """Return this balancer's limits for the pods of a slot, by address.

    Args:
        bounds: maximum number of requests in progress at each pod, by address.
        slot: name of the slot.
        own: load of this balancer.
        others: newest known loads of the other balancers.
        unknown: number of balancers whose load is not known yet; each is assumed to have the demand of this balancer.
    """
    loads = sorted([own, *others], key=lambda load: load.agent)
    demands = [load.demand.get(slot, (0.0, 0.0)) for load in loads]
    demands += repeat(own.demand.get(slot, (0.0, 0.0)), unknown)
    mine = 2 * loads.index(own)
    result = {}
    for turn, (address, bound) in enumerate(sorted(bounds.items())):
        targets = integer_parts(bound, list(chain.from_iterable(demands)), turn)
        held = sum(sum(load.pods.get(address, _IDLE).held) for load in loads if load is not own)
        held += sum(targets[2 * len(loads) :])
        result[address] = _within(
            (max(targets[mine], 1), max(targets[mine + 1], 1)), own.pods.get(address, _IDLE), bound - held
        )
    return result


def integer_parts(bound: int, demands: Sequence[float], turn: int) -> list[int]:
    """Split the number `bound` in proportion to the demands, into whole numbers that add up to `bound`.

    Demands below `MIN_DEMAND` count as 0; without any demand the parts are equal. `turn` varies which parts are rounded
    up.
    """
    weights = [demand if demand >= MIN_DEMAND else 0.0 for demand in demands]
    if not any(weights):
        weights = [1.0] * len(demands)
    total, reached, parts = sum(weights), turn * GOLDEN % 1, []
    edge = math.floor(reached)
    for weight in weights:
        reached += bound * weight / total
        before, edge = edge, math.floor(reached + 1e-9)
        parts.append(edge - before)
    return parts


def _within(targets: tuple[int, int], pod: PodLoad, room: int) -> tuple[int, int]:
    """Return the limits of both protocols after a step towards their targets.

    A limit grows only by the part of `room` that is free.
    """
    limits = [min(limit, target) for limit, target in zip(pod.limits, targets, strict=True)]
    for index, target in enumerate(targets):
        other = PodLoad(pod.inflight, (limits[0], limits[1])).held[1 - index]
        limits[index] = max(limits[index], min(target, room - other), 1)
    return limits[0], limits[1]
