"""The field `status.cost`, with the cost of a model's GPUs. Pure.

Out of scope: how GPU time is counted (`halcyon.scaling.gpu_cost`), and when a new value is published
(`control/reporting/gpu_costs.py`).
"""

from __future__ import annotations

from typing import Any

from halcyon.control.state.scope import Scope
from halcyon.scaling.lazy_text import plain


def make(scope: Scope) -> dict[str, Any] | None:
    """Return the value of `status.cost`; None for a model without GPUs. Unknown values are left out."""
    costs = scope.costs
    if costs.settling:
        return scope.status.get("cost")
    if (cost := costs.cost) is None:
        return None
    fields: dict[str, Any] = {"gpus": cost.gpus}
    if cost.per_hour is not None:
        fields["perHour"] = f"{cost.per_hour:.2f}"
    if cost.per_thousand is not None:
        fields["perThousandInferences"] = plain(cost.per_thousand, 2)
    if costs.currency and "perHour" in fields:
        fields["currency"] = costs.currency
    for name in ("saving", "starting", "busy", "idle"):
        if (share := getattr(cost, name)) is not None:
            fields[f"{name}Percent"] = round(100 * share)
    return fields
