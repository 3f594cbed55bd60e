"""Table of models with filtering, sorting and paging. Pure, except for a cache of the rows of unchanged models.

The state of a model is the first one in this table whose condition is true:

| state       | condition                                                |
| ----------- | -------------------------------------------------------- |
| stalled     | Stalled is True: a user must act                         |
| progressing | Reconciling is True                                      |
| unready     | Ready is False                                           |
| zero        | Ready is True, and spec.replicas is 0                    |
| limited     | Ready is True, and a limit prevents more replicas        |
| ready       | Ready is True                                            |
| unknown     | any other                                                |

Out of scope: which models a user may see (`authorization`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeVar, get_args

from halcyon.dashboard.history import FIELDS, STEP_S, ChartHistory
from halcyon.dashboard.ports import ModelNumbers, Name, Object

log = logging.getLogger(__name__)

State = Literal["stalled", "unready", "progressing", "unknown", "limited", "zero", "ready"]
"""State of a model. The order, from the most to the least urgent, is used for sorting by state."""
SortKey = Literal[
    "state",
    "name",
    "namespace",
    "replicas",
    "queue",
    "gpu",
    "rate",
    "latency",
    "batch",
    "errors",
    "gpus",
    "cost",
    "age",
]
STATES: tuple[State, ...] = get_args(State)
SORT_KEYS: tuple[SortKey, ...] = get_args(SortKey)
MAX_ROWS = 200
"""Maximum number of rows on a page."""
MAX_TEXT_LENGTH = 200
"""Maximum length of the filter text, in characters."""
SPARK_POINTS = 60
"""Number of points in a row's small chart, which shows ten minutes."""
UNREADABLE = "Unreadable"
"""Reason of a model whose stored object is malformed."""
MAX_CACHED = 64
"""Maximum number of cached results. Requests with the same parameters share a result."""
_FIELDS = {"queue": "waiting", "latency": "p95"}
_COLUMNS = {key: FIELDS.index(_FIELDS.get(key, key)) for key in ("gpu", "rate", "queue", "latency", "batch", "errors")}
_CAPS = frozenset({"max", "quota", "budget"})
"""Values of status.scaling.limitedBy for limits that keep the replicas below the number that the load requires."""


K = TypeVar("K")
V = TypeVar("V")


class InvalidQuery(ValueError):  # noqa: N818  # an answer (400), not a fault
    """A query parameter of a request is invalid (400); the message has a valid example."""


@dataclass(frozen=True, slots=True)
class TableQuery:
    """Filter, order and page of the table."""

    text: str = ""
    """Words that must all occur in the namespace, name, reason or image of a model."""
    state: State | Literal[""] = ""
    sort: SortKey = "state"
    descending: bool = False
    offset: int = 0
    limit: int = 100

    @classmethod
    def of(cls, query: Mapping[str, str]) -> TableQuery:
        """Parse the query parameters of a URL.

        Raises:
            InvalidQuery: a parameter is invalid.
        """
        state, sort = query.get("state", ""), query.get("sort", "state")
        order = query.get("order", "ascending")
        if state and state not in STATES:
            raise InvalidQuery(f"state is {state[:50]!r}; good: {', '.join(STATES)}")
        if sort not in SORT_KEYS:
            raise InvalidQuery(f"sort is {sort[:50]!r}; good: {', '.join(SORT_KEYS)}")
        if order not in {"ascending", "descending"}:
            raise InvalidQuery(f"order is {order[:50]!r}; good: ascending, descending")
        if len(query.get("text", "")) > MAX_TEXT_LENGTH:
            raise InvalidQuery(f"text has {len(query['text'])} characters; the limit is {MAX_TEXT_LENGTH}")
        return cls(
            text=query.get("text", "").lower(),
            state=state,
            sort=sort,
            descending=order == "descending",
            offset=int_parameter(query, "offset", 0, 0, 1_000_000),
            limit=int_parameter(query, "limit", 100, 1, MAX_ROWS),
        )


@dataclass(frozen=True, slots=True)
class TableRow:
    """Row of one model, with the values from its ModelDeployment."""

    namespace: str
    name: str
    state: State
    reason: str
    """Reason from the conditions, in one word."""
    ready: int | None
    replicas: int
    desired: int | None
    min: int | None
    """Minimum replicas. `min` and `max` are None if spec.scaling is not set."""
    max: int | None
    queue: float | None
    """Queued requests in the status. `queue`, `gpu` and `batch` from the status are shown if the current value is unknown."""
    queue_target: float | None
    """Target for the queued requests of all ready replicas together."""
    gpu: float | None
    batch: float | None
    gpus: int
    """Number of GPUs of the pods that have a node, if the status has this number; else of all existing pods."""
    cost: float | None
    """Cost of these GPUs per hour; None if the site has set no price."""
    currency: str
    policy: str
    image: str
    created: str
    why: str
    """Explanation of the last scaling decision, as text."""

    @property
    def key(self) -> Name:
        """Key of the model."""
        return Name(self.namespace, self.name)


def row(model: Object) -> TableRow:
    """Return the row of a ModelDeployment."""
    meta, spec, status = model["metadata"], model.get("spec") or {}, model.get("status") or {}
    summary, scaling, cost = (status.get(part) or {} for part in ("summary", "scaling", "cost"))
    scaling_spec, gpu = spec.get("scaling") or {}, (spec.get("runtime") or {}).get("gpu")
    per_pod = gpu.get("count", 1) if gpu else 0
    return TableRow(
        namespace=meta["namespace"],
        name=meta["name"],
        state=_state(spec, status),
        reason=str(summary.get("state") or "Unknown"),
        ready=status.get("readyReplicas"),
        replicas=int(spec.get("replicas", 1)),
        desired=scaling.get("desired"),
        min=scaling_spec.get("minReplicas", 1) if scaling_spec else None,
        max=scaling_spec.get("maxReplicas"),
        queue=_float(str(summary.get("queue")).partition("/")[0]),
        queue_target=_float(str(summary.get("queue")).partition("/")[2]),
        gpu=_float(summary.get("gpu")),
        batch=_float(summary.get("batch")),
        gpus=cost["gpus"] if "gpus" in cost else int(per_pod) * int(status.get("replicas") or 0),
        cost=_float(cost.get("perHour")),
        currency=str(cost.get("currency") or ""),
        policy=str(scaling.get("policy") or ""),
        image=str(status.get("runtimeImage") or ""),
        created=str(meta.get("creationTimestamp") or ""),
        why=str(scaling.get("why") or ""),
    )


def _row_or_unreadable(name: Name, model: Object) -> TableRow:
    """Return the row of a model. If its object is malformed, return a row that says so, so that the other rows can be shown."""
    try:
        return row(model)
    except Exception:  # a malformed object
        log.exception("a ModelDeployment can't be shown", extra={"key": f"{name.namespace}/{name.name}"})
        bare = {"namespace": name.namespace, "name": name.name}
        return replace(row({"metadata": bare}), reason=UNREADABLE)


def _state(spec: Object, status: Object) -> State:
    conditions = {c["type"]: c["status"] for c in status.get("conditions") or ()}
    if conditions.get("Stalled") == "True":
        return "stalled"
    if conditions.get("Reconciling") == "True":
        return "progressing"
    ready = conditions.get("Ready")
    if ready == "False":
        return "unready"
    if ready != "True":
        return "unknown"
    if spec.get("replicas", 1) == 0:
        return "zero"
    return "limited" if _CAPS.intersection((status.get("scaling") or {}).get("limitedBy") or ()) else "ready"


def _float(text: object) -> float | None:
    """Parse a number that the status contains as text; return None if it is not a number."""
    try:
        return float(str(text))
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class _VisibleModels:
    """Rows of the models that a user may see."""

    rows: list[TableRow]
    """Rows, sorted by namespace and name."""
    counts: dict[State, int]
    gpus: int
    cost: float | None
    currency: str


class Fleet:
    """Rows of all models. The result of a query is cached until an object changes or the history has a new step."""

    def __init__(self, history: ChartHistory) -> None:
        self._history = history
        self._changes = self._step = -1
        self._rows: dict[Name, tuple[str, TableRow]] = {}
        self._visible: dict[frozenset[str] | None, _VisibleModels] = {}
        self._orders: dict[tuple[object, ...], list[TableRow]] = {}
        self._static_parts: dict[Name, dict[str, Any]] = {}
        """Constant parts of the rows that have been returned before, by model."""

    def page(
        self,
        query: TableQuery,
        *,
        names: Collection[Name],
        model: Callable[[Name], Object | None],
        numbers: Callable[[Name], ModelNumbers],
        sees: frozenset[str] | None,
        changes: int,
        step: int,
    ) -> dict[str, Any]:
        """Return the JSON document for a page of the table.

        Args:
            query: filter, order and page.
            names: keys of all models.
            model: returns the ModelDeployment of a model.
            numbers: returns the current numbers of a model; called only for the rows on the page.
            sees: namespaces that the user may see; None means all.
            changes: number of changes to ModelDeployments so far, which invalidates the cache.
            step: number of steps in the history so far, which invalidates the cache.
        """
        if changes != self._changes:
            self._changes = changes
            self._read(names, model)
            self._visible.clear()
        elif step != self._step:
            self._orders.clear()
            self._static_parts.clear()
        self._step = step
        visible = self._cached(self._visible, sees, lambda: self._select_visible(sees))
        order = (sees, query.text, query.state, query.sort, query.descending)
        matched = self._cached(self._orders, order, lambda: self._sorted(_matching(visible.rows, query), query))
        rows = matched[query.offset : query.offset + query.limit]
        return {
            "total": len(visible.rows),
            "matched": len(matched),
            "offset": query.offset,
            "counts": visible.counts,
            "gpus": visible.gpus,
            "cost": visible.cost,
            "currency": visible.currency,
            "rows": [self._document(one, numbers(one.key)) for one in rows],
        }

    def _read(self, names: Collection[Name], model: Callable[[Name], Object | None]) -> None:
        self._orders.clear()
        self._static_parts.clear()
        rows: dict[Name, tuple[str, TableRow]] = {}
        for name in names:
            if (obj := model(name)) is not None:
                held, version = self._rows.get(name), obj["metadata"]["resourceVersion"]
                rows[name] = (
                    held if held is not None and held[0] == version else (version, _row_or_unreadable(name, obj))
                )
        self._rows = rows

    def _select_visible(self, sees: frozenset[str] | None) -> _VisibleModels:
        rows = [self._rows[name][1] for name in sorted(self._rows) if sees is None or name.namespace in sees]
        counts = dict.fromkeys(STATES, 0)
        for one in rows:
            counts[one.state] += 1
        costs = [one.cost for one in rows if one.cost is not None]
        currency = next((one.currency for one in rows if one.currency), "")
        return _VisibleModels(rows, counts, sum(one.gpus for one in rows), sum(costs) if costs else None, currency)

    @staticmethod
    def _cached(cache: dict[K, V], key: K, make: Callable[[], V]) -> V:
        """Return the cached result for the key; if there is none, compute and cache it. The cache has at most `MAX_CACHED` results."""
        if key not in cache:
            if len(cache) >= MAX_CACHED:
                cache.clear()
            cache[key] = make()
        return cache[key]

    def _document(self, one: TableRow, numbers: ModelNumbers) -> dict[str, Any]:
        static = self._static_parts.get(one.key)
        if static is None:
            series = self._history.series(one.key, SPARK_POINTS)
            rates = [values[_COLUMNS["rate"]] for values in series.rows]
            static = self._static_parts[one.key] = asdict(one) | {"sparks": rates, "sparkStep": STEP_S}
        newest = self._history.newest(one.key)
        return static | {
            "queue": _rounded(one.queue if numbers.waiting is None else numbers.waiting),
            "gpu": _rounded(one.gpu if numbers.gpu is None else numbers.gpu),
            "batch": _rounded(one.batch if numbers.batch is None else numbers.batch),
            "rate": _rounded(numbers.rate),
            "latency": _rounded(None if newest is None else newest[_COLUMNS["latency"]]),
            "in_triton": _rounded(numbers.latency_ms),
            "errors": None if numbers.errors is None else _rounded(numbers.errors * 100),
        }

    def _sorted(self, rows: Iterable[TableRow], query: TableQuery) -> list[TableRow]:
        """Return the rows in the order of the query.

        Unknown values come last in both directions. Rows with equal values are sorted by namespace and name.
        """
        known: list[tuple[Any, TableRow]] = []
        unknown: list[TableRow] = []
        for one in rows:
            value = self._value(one, query.sort)
            if value is None:
                unknown.append(one)
            else:
                known.append((value, one))
        known.sort(key=lambda pair: pair[0], reverse=query.descending)
        return [one for _, one in known] + unknown

    def _value(self, one: TableRow, by: SortKey) -> Any:
        match by:
            case "state":
                return STATES.index(one.state)
            case "name":
                return (one.name, one.namespace)
            case "namespace":
                return (one.namespace, one.name)
            case "replicas":
                return one.replicas
            case "gpus":
                return one.gpus
            case "cost":
                return one.cost
            case "age":
                return one.created or None
            case "queue" | "gpu" | "rate" | "latency" | "batch" | "errors":
                newest = self._history.newest(one.key)
                known = None if newest is None else newest[_COLUMNS[by]]
                return {"queue": one.queue, "gpu": one.gpu, "batch": one.batch}.get(by) if known is None else known


def _matching(rows: Sequence[TableRow], query: TableQuery) -> Iterable[TableRow]:
    words = query.text.split()
    for one in rows:
        if query.state and one.state != query.state:
            continue
        if words:
            text = f"{one.namespace}/{one.name} {one.reason} {one.image}".lower()
            if not all(word in text for word in words):
                continue
        yield one


def int_parameter(query: Mapping[str, str], name: str, default: int, minimum: int, maximum: int) -> int:
    """Return the value of an integer parameter in a URL.

    Raises:
        InvalidQuery: the value is not an integer, or out of range.
    """
    text = query.get(name, str(default))
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else -1
    if not minimum <= value <= maximum:
        raise InvalidQuery(f"{name} is {text[:50]!r}; good: a number from {minimum} to {maximum}")
    return value


def _rounded(value: float | None) -> float | None:
    """Return the value rounded to three digits, so that changes that are not visible in the table are not sent."""
    return None if value is None else float(f"{value:.3g}")
