"""ModelDeployments, as the API server has them -> one row each: what `get` and `top` list. Pure.

What isn't known is None or `-`, never 0. Not here: how a table looks (`drawing`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic.alias_generators import to_camel

from halcyon.api import user_annotations
from halcyon_cli.kube import fields
from halcyon_cli.output.report_text import ago

Json = Mapping[str, Any]
SortKey = Literal["queue", "gpu", "cost", "name"]
NONE = "-"


@dataclass(frozen=True)
class ModelRow:
    """One model."""

    namespace: str
    name: str
    ready: str
    """Of the condition: True, False or Unknown."""
    reason: str
    replicas: str
    """Ready and wanted pods."""
    max_replicas: int | None
    queue: str
    """Waiting requests, and beside them the target where there is one."""
    gpu: str
    """Percent, the mean of the ready pods."""
    batch: str
    url: str
    created: datetime | None
    image: str
    policy: str
    actuator: str
    scaled: datetime | None
    """When the count asked for changed last."""
    waiting: float | None
    utilization: float | None
    gpus: int
    """GPUs of the pods that exist."""
    cost_per_hour: float | None
    """Of its GPUs for an hour, as the operator tells it; None where the site hasn't said a price."""
    currency: str
    note: str
    """The reason that a person gave for a count or a pause."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        found = {to_camel(name): value for name, value in vars(self).items()}
        return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in found.items()}


def row(model: Json) -> ModelRow:
    """The row of a model."""
    meta, spec, status = (fields.mapping(model.get(part)) for part in ("metadata", "spec", "status"))
    summary, scaling = fields.mapping(status.get("summary")), fields.mapping(status.get("scaling"))
    conditions = {str(c.get("type")): c for c in fields.mappings(status.get("conditions"))}
    gpu = fields.mapping(fields.mapping(spec.get("runtime")).get("gpu"))
    per_pod = fields.count(gpu.get("count", 1)) or 0
    signals = {str(s.get("name")): s for s in fields.mappings(scaling.get("signals"))}
    decisions, told = fields.mappings(scaling.get("decisions")), fields.mapping(status.get("cost"))
    queue, use = (fields.text(summary.get(name)) or NONE for name in ("queue", "gpu"))
    return ModelRow(
        namespace=str(meta.get("namespace")),
        name=str(meta.get("name")),
        ready=str(conditions.get("Ready", {}).get("status") or "Unknown"),
        reason=fields.text(summary.get("state")) or NONE,
        replicas=fields.text(summary.get("ready")) or f"?/{spec.get('replicas', 1)}",
        max_replicas=fields.count(fields.mapping(spec.get("scaling")).get("maxReplicas")),
        queue=queue,
        gpu=use.removesuffix("%"),
        batch=fields.text(summary.get("batch")) or NONE,
        url=fields.text(fields.mapping(status.get("endpoints")).get("http")) or NONE,
        created=fields.time(meta.get("creationTimestamp")),
        image=fields.text(status.get("runtimeImage")) or NONE,
        policy=fields.text(scaling.get("policy")) or NONE,
        actuator=fields.text(scaling.get("actuator")) or NONE,
        scaled=fields.time(decisions[0].get("time")) if decisions else None,
        waiting=_number(fields.mapping(signals.get("queueDepth")).get("value"), queue.partition("/")[0]),
        utilization=_number(use.removesuffix("%")),
        gpus=per_pod * (fields.count(fields.mapping(status.get("replicas")).get("total")) or 0),
        cost_per_hour=_number(told.get("perHour")),
        currency=fields.text(told.get("currency")) or "",
        note=user_annotations.reason({"annotations": fields.mapping(meta.get("annotations"))}),
    )


def _number(*texts: object) -> float | None:
    """The first of them that is a number."""
    for text in texts:
        try:
            return float(str(text))
        except ValueError:
            continue
    return None


def listed(
    rows: Sequence[ModelRow], now: datetime, *, wide: bool, everywhere: bool
) -> tuple[list[str], list[list[str]]]:
    """Head and cells of the list: the columns of `kubectl get mdep`."""
    head = ["NAME", "READY", "REASON", "REPLICAS", "MAX", "QUEUE", "GPU%", "BATCH", "URL", "AGE"]
    head += ["IMAGE", "POLICY", "ACTUATOR", "SCALED"] if wide else []
    cells = []
    for one in rows:
        most = NONE if one.max_replicas is None else str(one.max_replicas)
        line = [one.name, one.ready, one.reason, one.replicas, most, one.queue, one.gpu, one.batch, one.url]
        line.append(ago(one.created, now))
        cells.append(line + ([one.image, one.policy, one.actuator, ago(one.scaled, now)] if wide else []))
    if everywhere:
        return ["NAMESPACE", *head], [[one.namespace, *line] for one, line in zip(rows, cells, strict=True)]
    return head, cells


def ordered(rows: Sequence[ModelRow], by: SortKey) -> list[ModelRow]:
    """The most first; what isn't known last; equals by namespace and name."""

    def key(one: ModelRow) -> tuple[float, str, str]:
        cost = float(one.gpus) if one.cost_per_hour is None else one.cost_per_hour
        amount = {"queue": one.waiting, "gpu": one.utilization, "cost": cost, "name": 0.0}[by]
        return (1.0 if amount is None else -amount, one.namespace, one.name)

    return sorted(rows, key=key)


def priced(one: ModelRow, price: float | None) -> float | None:
    """What its GPUs cost in an hour, at `price` for each where one is given, else as the operator tells it."""
    return one.cost_per_hour if price is None else one.gpus * price


def topped(
    rows: Sequence[ModelRow], *, price: float | None, wide: bool, everywhere: bool
) -> tuple[list[str], list[list[str]]]:
    """Head and cells of `top`, with a line for all of them together. `price` is that of a GPU for an hour, in place of the site's."""
    costs = [priced(one, price) for one in rows]
    known = [cost for cost in costs if cost is not None]
    currencies = {one.currency for one in rows if one.cost_per_hour is not None} if price is None else set()
    unit = f" {currencies.pop()}" if len(currencies) == 1 and "" not in currencies else ""
    head = ["NAME", "REPLICAS", "MAX", "QUEUE", "GPU%", "GPUS"] + (
        [f"COST/H{unit}"] if known or price is not None else []
    )
    shown = len(head) > 6
    head += (["BATCH", "POLICY", "SCALED BY"] if wide else []) + ["REASON"]
    cells = []
    for one, cost in zip(rows, costs, strict=True):
        most = NONE if one.max_replicas is None else str(one.max_replicas)
        line = [one.name, one.replicas, most, one.queue, one.gpu, str(one.gpus)]
        line += [NONE if cost is None else f"{cost:.2f}"] if shown else []
        line += [one.batch, one.policy, one.actuator] if wide else []
        cells.append([*line, one.reason + (f": {one.note}" if one.note else "")])
    waiting = [one.waiting for one in rows if one.waiting is not None]
    total = [f"{len(rows)} models", "", "", f"{sum(waiting):.0f}" if waiting else NONE, ""]
    total += [str(sum(one.gpus for one in rows))] + ([f"{sum(known):.2f}"] if shown else [])
    total += [""] * (len(head) - len(total))
    if len(rows) > 1:
        cells.append(total)
    if everywhere:
        spaces = [*(one.namespace for one in rows), ""]
        return ["NAMESPACE", *head], [[space, *line] for space, line in zip(spaces, cells, strict=False)]
    return head, cells
