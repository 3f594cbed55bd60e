"""Policies by name, in the format of the command line: `kpa`, `kpa:target=8,stable_window_s=30`, `halcyon`.

Out of scope: the policies (`peers`, `halcyon`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from halcyon_simulator.engine.case import Case
from halcyon_simulator.engine.policy_view import Policy
from halcyon_simulator.policies import peers

HALCYON = "halcyon"
"""Name of Halcyon's planner with the same balancer as the peers, which never rejects a request."""
BALANCED = "halcyon+balancer"
"""Name of Halcyon's planner with Halcyon's balancer, which rejects requests on arrival if they can't be served in time.
This requires a deadline (a gRPC deadline, or queueTimeout). In the simulation, it is the latency objective."""
OWN = frozenset({HALCYON, BALANCED})
WITHOUT = "without"
"""Name of the knob of Halcyon's policies that names a part of the planner to switch off (`ablation`)."""


class PolicyTextError(ValueError):
    """The text for a policy is invalid. The message lists the valid formats."""


@dataclass(frozen=True)
class Named:
    """Policy with its name and its knobs, before it is built for a simulation case."""

    name: str
    params: tuple[tuple[str, str], ...] = ()
    """Knobs that differ from the policy's defaults, in the given order."""

    @classmethod
    def of(cls, name: str, params: Mapping[str, object]) -> Named:
        """Return a policy with the parameters in a mapping, such as a point of `peers.sweep`."""
        return cls(name, tuple((key, str(value)) for key, value in params.items()))

    def __str__(self) -> str:
        """Return the policy in the format of the command line."""
        return f"{self.name}:{','.join(f'{key}={value}' for key, value in self.params)}" if self.params else self.name

    @property
    def without(self) -> str | None:
        """Name of the planner's part that is switched off; None for the whole planner, and for other policies."""
        return dict(self.params).get(WITHOUT) if self.name in OWN else None

    def facing(self, case: Case) -> Case:
        """Return the simulation case with the changes that this policy needs, for example another balancer."""
        return replace(case, refuse_late=True) if self.name == BALANCED else case

    def build(self, case: Case) -> Policy:
        """Return a new policy for one run.

        Raises:
            PolicyTextError: a knob doesn't exist, or a value is invalid.
        """
        try:
            if self.name in OWN:
                from halcyon_simulator.policies.ablation import AblatedPolicy  # noqa: PLC0415  # the planner, only if it is used
                from halcyon_simulator.policies.halcyon import HalcyonPolicy  # noqa: PLC0415

                knobs = {key: _number(key, value) for key, value in self.params if key != WITHOUT}
                part = self.without
                return HalcyonPolicy(case, **knobs) if part is None else AblatedPolicy(case, part, **knobs)
            return peers.build(self.name, dict(self.params), case)
        except (TypeError, ValueError) as error:
            raise PolicyTextError(str(error)) from error


def names() -> tuple[str, ...]:
    """Return the names of all policies."""
    return (HALCYON, BALANCED, *peers.PEERS)


def parsed(text: str) -> Named:
    """Parse a policy in the format `NAME[:key=value,...]`.

    Raises:
        PolicyTextError: the name is unknown, or the format is invalid.
    """
    name, _, settings = text.partition(":")
    if name not in names():
        raise PolicyTextError(f"there is no policy {name!r}; there are {', '.join(names())}; for example kpa:target=8")
    return Named(name, tuple(pairs(settings, subject=f"policy {name}", example=f"{name}:key=value,key=value").items()))


def pairs(text: str, *, subject: str, example: str) -> dict[str, str]:
    """Parse `key=value,key=value` into pairs. An empty text gives no pairs."""
    values: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not (key and equals and value):
            raise PolicyTextError(f"{subject}: {part!r} is no key=value; for example {example}")
        if key in values:
            raise PolicyTextError(f"{subject}: {key} is given twice, as {values[key]} and {value}; once is enough")
        values[key] = value
    return values


def _number(key: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise PolicyTextError(
            f"policy {HALCYON}: {key} is {text!r}; it has to be a number of at least 0, for example {HALCYON}:drain_s=20"
        )
    return number
