"""What the status tells of cost: the part `cost`. Pure. Not here: what is counted (`scaling.cost`), and when it is news (`costs`)."""

from __future__ import annotations

from typing import Any

from halcyon.control.state.scope import Scope


def make(view: Scope) -> dict[str, Any] | None:
    """The part `cost`; None for a model without GPUs. What isn't known is left out."""
    costs = view.costs
    if costs.settling:
        return view.status.get("cost")
    if (found := costs.cost) is None:
        return None
    told: dict[str, Any] = {"gpus": found.gpus}
    if found.per_hour is not None:
        told["perHour"] = f"{found.per_hour:.2f}"
    if found.per_thousand is not None:
        told["perThousandInferences"] = f"{found.per_thousand:.2g}"
    if costs.currency and "perHour" in told:
        told["currency"] = costs.currency
    for name in ("saving", "starting", "busy", "idle"):
        if (share := getattr(found, name)) is not None:
            told[f"{name}Percent"] = round(100 * share)
    return told
