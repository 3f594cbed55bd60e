"""Rows of `halcyon get` and `halcyon top`, one per ModelDeployment. Pure.

Unknown values are None or `-`, never 0. Out of scope: the layout of a table (`tables`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from pydantic.alias_generators import to_camel

from halcyon.api import user_annotations
from halcyon.api.stored.replicas_in_force import replicas_in_force
from halcyon_cli.explain import model_state
from halcyon_cli.kube import fields
from halcyon_cli.output.report_text import ago

Json = Mapping[str, Any]
SortKey = Literal["queue", "gpu", "cost", "name"]
UNKNOWN = "-"


@dataclass(frozen=True)
class ModelRow:
    """Table row of one model."""

    namespace: str
    name: str
    ready: str
    """Status of the condition Ready: True, False or Unknown."""
    reason: str
    replicas: str
    """Numbers of ready and desired pods, such as 3/6."""
    max_replicas: int | None
    desired: str
    range: str
    """Minimum and maximum replicas, such as 1-8."""
    queue: str
    """Number of queued requests, with the target if one is set."""
    gpu: str
    """Mean GPU utilization of the ready pods, in percent."""
    batch: str
    url: str
    created: datetime | None
    image: str
    policy: str
    actuator: str
    scaled: datetime | None
    """Time at which the desired replicas last changed."""
    capacity: str
    """Requests per second that one replica can answer within the objective."""
    waiting: float | None
    """Number of queued requests, as in `queue`. It isn't the signal queueDepth, to which the policy Rules adds rejected
    requests."""
    utilization: float | None
    gpus: int
    """Number of GPUs that the model holds, from the status. If the status doesn't have it, it is calculated from all
    existing pods."""
    cost_per_hour: float | None
    """Cost of the model's GPUs per hour, from the status; None if no price is configured."""
    currency: str
    note: str
    """Reason that a user gave for the replicas or for a pause."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of the row."""
        values = {to_camel(name): value for name, value in vars(self).items()}
        return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()}


def build_row(model: Json) -> ModelRow:
    """Build the row for a model."""
    meta, spec, status = (fields.mapping(model.get(part)) for part in ("metadata", "spec", "status"))
    summary, scaling = fields.mapping(status.get("summary")), fields.mapping(status.get("scaling"))
    decisions, cost = fields.mappings(scaling.get("decisions")), fields.mapping(status.get("cost"))
    queue, utilization = (fields.text(summary.get(name)) or UNKNOWN for name in ("queue", "gpu"))
    return ModelRow(
        namespace=str(meta.get("namespace")),
        name=str(meta.get("name")),
        ready=str(model_state.conditions(model).get("Ready", {}).get("status") or "Unknown"),
        reason=fields.text(summary.get("state")) or UNKNOWN,
        replicas=fields.text(summary.get("ready")) or f"?/{replicas_in_force(model)}",
        max_replicas=fields.count(fields.mapping(spec.get("scaling")).get("maxReplicas")),
        desired=fields.text(summary.get("desired")) or UNKNOWN,
        range=fields.text(summary.get("range")) or UNKNOWN,
        queue=queue,
        gpu=utilization.removesuffix("%"),
        batch=fields.text(summary.get("batch")) or UNKNOWN,
        url=fields.text(fields.mapping(status.get("address")).get("url")) or UNKNOWN,
        created=fields.time(meta.get("creationTimestamp")),
        image=fields.text(status.get("runtimeImage")) or UNKNOWN,
        policy=fields.text(scaling.get("policy")) or UNKNOWN,
        actuator=fields.text(scaling.get("actuator")) or UNKNOWN,
        scaled=fields.time(decisions[0].get("time")) if decisions else None,
        capacity=fields.text(fields.mapping(status.get("capacity")).get("sustainedRequestsPerSecond")) or UNKNOWN,
        waiting=_number(queue.partition("/")[0]),
        utilization=_number(utilization.removesuffix("%")),
        gpus=_gpus(spec, status),
        cost_per_hour=_number(cost.get("perHour")),
        currency=fields.text(cost.get("currency")) or "",
        note=user_annotations.reason({"annotations": fields.mapping(meta.get("annotations"))}),
    )


def _gpus(spec: Json, status: Json) -> int:
    """Return the number of GPUs in the status, or else that of all existing pods (see `ModelRow.gpus`)."""
    gpus = fields.count(fields.mapping(status.get("cost")).get("gpus"))
    if gpus is not None:
        return gpus
    gpu = fields.mapping(spec.get("runtime")).get("gpu")
    per_pod = (fields.count(fields.mapping(gpu).get("count", 1)) or 0) if gpu else 0
    return per_pod * (fields.count(status.get("replicas")) or 0)


def _number(text: object) -> float | None:
    """Return the argument as a number; None if it isn't one."""
    try:
        return float(str(text))
    except ValueError:
        return None


class _Column(NamedTuple):
    """Column of a table of models."""

    title: str
    cell: Callable[[ModelRow], str]
    total: str = ""
    """Cell in the row with the totals."""


Table = tuple[list[str], list[list[str]]]
"""Header and cells of a table."""

_NAMESPACE = _Column("NAMESPACE", lambda row: row.namespace)


def _table(rows: Sequence[ModelRow], columns: Sequence[_Column]) -> Table:
    return [column.title for column in columns], [[column.cell(row) for column in columns] for row in rows]


def list_table(rows: Sequence[ModelRow], now: datetime, *, wide: bool, all_namespaces: bool) -> Table:
    """Return the header and the cells of the list of models, which has the same columns as `kubectl get mdep`."""
    columns = [
        *([_NAMESPACE] if all_namespaces else []),
        _Column("NAME", lambda row: row.name),
        _Column("STATUS", lambda row: row.reason),
        _Column("READY", lambda row: row.replicas),
        _Column("DESIRED", lambda row: row.desired),
        _Column("RANGE", lambda row: row.range),
        _Column("AGE", lambda row: ago(row.created, now)),
    ]
    if wide:
        columns += [
            _Column("QUEUE", lambda row: row.queue),
            _Column("GPU%", lambda row: row.gpu),
            _Column("BATCH", lambda row: row.batch),
            _Column("URL", lambda row: row.url),
            _Column("IMAGE", lambda row: row.image),
            _Column("POLICY", lambda row: row.policy),
            _Column("ACTUATOR", lambda row: row.actuator),
            _Column("SCALED", lambda row: ago(row.scaled, now)),
            _Column("CAPACITY", lambda row: row.capacity),
        ]
    return _table(rows, columns)


def sorted_rows(rows: Sequence[ModelRow], key_name: SortKey, price: float | None = None) -> list[ModelRow]:
    """Sort rows by a value, highest first and unknown values last. Equal rows are sorted by namespace and name.

    Costs are those of `hourly_cost`. A model without a known price is sorted as if a GPU cost 1 per hour. Costs in
    different currencies can't be compared, so they are sorted by currency first.
    """
    by_currency = key_name == "cost" and len(_currencies(rows, price)) > 1

    def key(row: ModelRow) -> tuple[str, float, str, str]:
        cost = float(row.gpus) if (hourly := hourly_cost(row, price)) is None else hourly
        amount = {"queue": row.waiting, "gpu": row.utilization, "cost": cost, "name": 0.0}[key_name]
        return (row.currency if by_currency else "", 1.0 if amount is None else -amount, row.namespace, row.name)

    return sorted(rows, key=key)


def hourly_cost(row: ModelRow, price: float | None) -> float | None:
    """Return the cost per hour of a model's GPUs, from `price` per GPU and hour, or else from the status."""
    return row.cost_per_hour if price is None else row.gpus * price


def cost_fields(row: ModelRow, price: float | None) -> dict[str, Any]:
    """Return the cost per hour and its currency in JSON form. A given price has no currency."""
    return {"costPerHour": hourly_cost(row, price), "currency": row.currency if price is None else ""}


def _currencies(rows: Sequence[ModelRow], price: float | None) -> list[str]:
    """Return the currencies of the known costs, sorted; empty if `price` replaces the configured prices."""
    return sorted({row.currency for row in rows if row.cost_per_hour is not None}) if price is None else []


def _cost_sums(rows: Sequence[ModelRow]) -> str:
    """Return the sum of the costs in each currency, for example `4.00 EUR + 3.00 USD`."""
    sums: dict[str, float] = {}
    for row in rows:
        if row.cost_per_hour is not None:
            sums[row.currency] = sums.get(row.currency, 0.0) + row.cost_per_hour
    # A sum without a currency is the last one, so that its number isn't taken for one of the next currency.
    return " + ".join(
        f"{cost:.2f} {currency}".strip()
        for currency, cost in sorted(sums.items(), key=lambda pair: (not pair[0], pair[0]))
    )


def top_table(rows: Sequence[ModelRow], *, price: float | None, wide: bool, all_namespaces: bool) -> Table:
    """Return the header and the cells of the table of `halcyon top`, with totals if there are several models.

    `price`, per GPU and hour, replaces the configured prices.
    """
    waiting = [row.waiting for row in rows if row.waiting is not None]
    columns = [
        *([_NAMESPACE] if all_namespaces else []),
        _Column("NAME", lambda row: row.name, f"{len(rows)} models"),
        _Column("READY", lambda row: row.replicas),
        _Column("RANGE", lambda row: row.range),
        _Column("QUEUE", lambda row: row.queue, f"{sum(waiting):.0f}" if waiting else UNKNOWN),
        _Column("GPU%", lambda row: row.gpu),
        _Column("GPUS", lambda row: str(row.gpus), str(sum(row.gpus for row in rows))),
        *_cost_columns(rows, price),
    ]
    if wide:
        columns += [
            _Column("BATCH", lambda row: row.batch),
            _Column("POLICY", lambda row: row.policy),
            _Column("SCALED BY", lambda row: row.actuator),
        ]
    columns.append(_Column("REASON", lambda row: row.reason + (f": {row.note}" if row.note else "")))
    head, cells = _table(rows, columns)
    totals = [[column.total for column in columns]] if len(rows) > 1 else []
    return head, cells + totals


def _cost_columns(rows: Sequence[ModelRow], price: float | None) -> list[_Column]:
    """Return the column of the costs per hour; none if no price is known.

    A single currency is in the title, several are in the cells.
    """
    costs = [cost for row in rows if (cost := hourly_cost(row, price)) is not None]
    if not costs and price is None:
        return []
    currencies = _currencies(rows, price)
    if len(currencies) > 1:
        return [_Column("COST/H", lambda row: _cost(row, price, row.currency), _cost_sums(rows))]
    title = f"COST/H {currencies[0]}" if currencies and currencies[0] else "COST/H"
    return [_Column(title, lambda row: _cost(row, price, ""), f"{sum(costs):.2f}")]


def _cost(row: ModelRow, price: float | None, currency: str) -> str:
    cost = hourly_cost(row, price)
    return UNKNOWN if cost is None else f"{cost:.2f} {currency}".rstrip()
