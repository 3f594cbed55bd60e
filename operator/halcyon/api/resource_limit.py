"""Calculation of how much of a shared resource limit one model may use. Pure.

There are three limits: ResourceQuotas of a namespace, the GPU budget of the site, and the site policy's GPUs per
namespace. They differ in which usage counts and when they are checked.

A limit never takes away resources that a model already uses. Out of scope: counting the usage of other models.
"""

# | limit                                    | counted usage                                     | checked                          |
# | ---------------------------------------- | ------------------------------------------------- | -------------------------------- |
# | ResourceQuotas of a namespace            | existing pods, and replicas granted since         | if replicas increase             |
# | GPU budget of the site                   | replicas that are granted or in force             | if replicas increase             |
# | GPUs per namespace, in the site policy   | accepted specs, at their maximum replicas         | if a spec is accepted            |

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal

Amount = int | Decimal


@dataclass(frozen=True, slots=True)
class ResourceLimit:
    """Limit on a resource that several models share, from the perspective of one of them."""

    total: Amount
    """Amount of the resource that all models may use in total."""
    elsewhere: Amount = 0
    """Amount of the resource that other models use or have been granted."""

    def replicas(self, each: Amount) -> int:
        """Return how many replicas fit into the limit if each uses the amount `each`, which must be above 0.

        The result is never negative.
        """
        return max(math.floor((Decimal(self.total) - self.elsewhere) / each), 0)

    def allows(self, amount: Amount, *, held: Amount = 0) -> bool:
        """Return True if the model may use `amount` in total.

        An amount up to `held`, which the model already uses, is always allowed.
        """
        return amount <= held or amount + self.elsewhere <= self.total
