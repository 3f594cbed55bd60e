"""The arithmetic of a limit that several models share. Pure.

| limit                                   | counted                                            | checked                          |
| ---------------------------------------- | ------------------------------------------------- | -------------------------------- |
| a namespace's ResourceQuotas            | pods that exist, and replicas granted since        | when replicas grow               |
| the site's GPU budget                   | replicas that are granted or in force              | when replicas grow               |
| the site's GPUs per namespace           | accepted specs at their maximum replicas           | when a spec is accepted          |

Common to all: GPUs (or other resources) that a model holds are never taken away by a limit. Out of scope: how each of them counts what
others hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal

Amount = int | Decimal


@dataclass(frozen=True, slots=True)
class ResourceLimit:
    """A limit, as one model sees it."""

    total: Amount
    """Amount that all may have together."""
    elsewhere: Amount = 0
    """Amount that the others have, or were promised."""

    def replicas(self, each: Amount) -> int:
        """Return the number of replicas of this amount that fit, which is at least 0. `each` must be above 0."""
        return max(math.floor((Decimal(self.total) - self.elsewhere) / each), 0)

    def allows(self, amount: Amount, *, held: Amount = 0) -> bool:
        """Return whether the model may have this amount. It may always keep what it holds."""
        return amount <= held or amount + self.elsewhere <= self.total
