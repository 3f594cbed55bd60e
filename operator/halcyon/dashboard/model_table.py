"""Models -> rows, filtered, sorted and paged. Pure, but for the rows that it remembers while their models don't change.

| state       | when                                                     |
| ----------- | -------------------------------------------------------- |
| stalled     | Stalled is True: it needs a person                       |
| progressing | Reconciling is True                                      |
| unready     | Ready is False                                           |
| zero        | Ready, and 0 replicas are asked for                      |
| limited     | Ready, and would have more replicas, were it not limited |
| ready       | Ready                                                    |
| unknown     | else                                                     |

Not here: who may see which of them (`access`).
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
"""The worst first: the order of sorting by state."""
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
"""Of a page."""
MAX_TEXT_LENGTH = 200
"""Characters of a filter."""
SPARKS = 60
"""Points of a row's small chart: ten minutes."""
MAX_KEPT = 64
"""Orders of rows that are kept for those who ask alike."""
_FIELDS = {"queue": "waiting"}
_COLUMNS = {key: FIELDS.index(_FIELDS.get(key, key)) for key in ("gpu", "rate", "queue", "latency", "batch", "errors")}
_CAPS = frozenset({"max", "quota", "budget"})
"""What keeps a count below what the load asks for (status.scaling.limitedBy)."""


K = TypeVar("K")
V = TypeVar("V")


class BadQuestion(ValueError):  # noqa: N818  # an answer (400), not a fault
    """The parameters of a page can't be used; the message says which, and what is good."""


@dataclass(frozen=True, slots=True)
class Question:
    """Which page of which rows."""

    text: str = ""
    """Words that must all be in the namespace, the name, the reason or the image."""
    state: State | Literal[""] = ""
    sort: SortKey = "state"
    descending: bool = False
    offset: int = 0
    limit: int = 100

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Question:
        """The question in a URL's parameters.

        Raises:
            BadQuestion: one of them can't be used.
        """
        state, sort = query.get("state", ""), query.get("sort", "state")
        order = query.get("order", "ascending")
        if state and state not in STATES:
            raise BadQuestion(f"state is {state[:50]!r}; good: {', '.join(STATES)}")
        if sort not in SORT_KEYS:
            raise BadQuestion(f"sort is {sort[:50]!r}; good: {', '.join(SORT_KEYS)}")
        if order not in {"ascending", "descending"}:
            raise BadQuestion(f"order is {order[:50]!r}; good: ascending, descending")
        if len(query.get("text", "")) > MAX_TEXT_LENGTH:
            raise BadQuestion(f"text has {len(query['text'])} characters; the limit is {MAX_TEXT_LENGTH}")
        return cls(
            text=query.get("text", "").lower(),
            state=state,
            sort=sort,
            descending=order == "descending",
            offset=whole(query, "offset", 0, 0, 1_000_000),
            limit=whole(query, "limit", 100, 1, MAX_ROWS),
        )


@dataclass(frozen=True, slots=True)
class TableRow:
    """One model, as its object tells it."""

    namespace: str
    name: str
    state: State
    reason: str
    """One word, as in the conditions."""
    ready: int | None
    replicas: int
    desired: int | None
    min: int | None
    """None where nobody scales it, as for `max`."""
    max: int | None
    queue: float | None
    """As the status tells it, as `gpu` and `batch`: for where nothing is known now."""
    queue_target: float | None
    """Of all ready replicas together."""
    gpu: float | None
    batch: float | None
    gpus: int
    """Of the pods that exist, or of those that have a node where that is told."""
    cost: float | None
    """Of these GPUs in an hour; None where the site has said no price."""
    currency: str
    policy: str
    image: str
    created: str
    why: str
    """The last decision in a sentence."""

    @property
    def key(self) -> Name:
        """Of the model."""
        return Name(self.namespace, self.name)


def row(model: Object) -> TableRow:
    """The row of a ModelDeployment."""
    meta, spec, status = model["metadata"], model.get("spec") or {}, model.get("status") or {}
    summary, scaling, cost = (status.get(part) or {} for part in ("summary", "scaling", "cost"))
    replicas, asked = status.get("replicas") or {}, spec.get("scaling") or {}
    per_pod = ((spec.get("runtime") or {}).get("gpu") or {}).get("count", 1)
    return TableRow(
        namespace=meta["namespace"],
        name=meta["name"],
        state=_state(spec, status),
        reason=str(summary.get("state") or "Unknown"),
        ready=replicas.get("ready"),
        replicas=int(spec.get("replicas", 1)),
        desired=scaling.get("desired"),
        min=asked.get("minReplicas", 1) if asked else None,
        max=asked.get("maxReplicas"),
        queue=_float(str(summary.get("queue")).partition("/")[0]),
        queue_target=_float(str(summary.get("queue")).partition("/")[2]),
        gpu=_float(summary.get("gpu")),
        batch=_float(summary.get("batch")),
        gpus=cost["gpus"] if "gpus" in cost else int(per_pod) * int(replicas.get("total") or 0),
        cost=_float(cost.get("perHour")),
        currency=str(cost.get("currency") or ""),
        policy=str(scaling.get("policy") or ""),
        image=str(status.get("runtimeImage") or ""),
        created=str(meta.get("creationTimestamp") or ""),
        why=str(scaling.get("why") or ""),
    )


def _row_of_any(name: Name, model: Object) -> TableRow:
    """The row, or one that says that it can't be read: the others have theirs all the same."""
    try:
        return row(model)
    except Exception:  # an object that nobody thought of
        log.exception("a ModelDeployment can't be shown", extra={"key": f"{name.namespace}/{name.name}"})
        bare = {"namespace": name.namespace, "name": name.name}
        return replace(row({"metadata": bare}), reason="Unreadable")


def _state(spec: Object, status: Object) -> State:
    said = {c["type"]: c["status"] for c in status.get("conditions") or ()}
    if said.get("Stalled") == "True":
        return "stalled"
    if said.get("Reconciling") == "True":
        return "progressing"
    ready = said.get("Ready")
    if ready == "False":
        return "unready"
    if ready != "True":
        return "unknown"
    if spec.get("replicas", 1) == 0:
        return "zero"
    return "limited" if _CAPS.intersection((status.get("scaling") or {}).get("limitedBy") or ()) else "ready"


def _float(text: object) -> float | None:
    """A number that the status has as a text."""
    try:
        return float(str(text))
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a reader may see of the fleet."""

    rows: list[TableRow]
    """By namespace and name."""
    counts: dict[State, int]
    gpus: int
    cost: float | None
    currency: str


class Fleet:
    """The rows of all models. What was made is kept for all who ask alike, until an object changes or the history has a new step."""

    def __init__(self, history: ChartHistory) -> None:
        self._history = history
        self._changes = self._step = -1
        self._rows: dict[Name, tuple[str, TableRow]] = {}
        self._seen: dict[frozenset[str] | None, _Seen] = {}
        self._orders: dict[tuple[object, ...], list[TableRow]] = {}
        self._resting: dict[Name, dict[str, Any]] = {}
        """What rests of rows that were shown."""

    def page(
        self,
        question: Question,
        *,
        names: Collection[Name],
        model: Callable[[Name], Object | None],
        reading: Callable[[Name], ModelNumbers],
        sees: frozenset[str] | None,
        changes: int,
        step: int,
    ) -> dict[str, Any]:
        """One page as JSON has it.

        Args:
            question: which.
            names: every model.
            model: gives its object.
            reading: gives what is known of it now; asked for the rows of the page only.
            sees: namespaces that the reader may see; None: all.
            changes: counts the changes of objects.
            step: counts the steps of the history.
        """
        if changes != self._changes:
            self._changes = changes
            self._read(names, model)
            self._seen.clear()
        elif step != self._step:
            self._orders.clear()
            self._resting.clear()
        self._step = step
        seen = self._kept(self._seen, sees, lambda: self._visible(sees))
        order = (sees, question.text, question.state, question.sort, question.descending)
        matched = self._kept(self._orders, order, lambda: self._ordered(_matching(seen.rows, question), question))
        shown = matched[question.offset : question.offset + question.limit]
        return {
            "total": len(seen.rows),
            "matched": len(matched),
            "offset": question.offset,
            "counts": seen.counts,
            "gpus": seen.gpus,
            "cost": seen.cost,
            "currency": seen.currency,
            "rows": [self._shown(one, reading(one.key)) for one in shown],
        }

    def _read(self, names: Collection[Name], model: Callable[[Name], Object | None]) -> None:
        self._orders.clear()
        self._resting.clear()
        rows: dict[Name, tuple[str, TableRow]] = {}
        for name in names:
            if (obj := model(name)) is not None:
                held, version = self._rows.get(name), obj["metadata"]["resourceVersion"]
                rows[name] = held if held is not None and held[0] == version else (version, _row_of_any(name, obj))
        self._rows = rows

    def _visible(self, sees: frozenset[str] | None) -> _Seen:
        rows = [self._rows[name][1] for name in sorted(self._rows) if sees is None or name.namespace in sees]
        counts = dict.fromkeys(STATES, 0)
        for one in rows:
            counts[one.state] += 1
        costs = [one.cost for one in rows if one.cost is not None]
        currency = next((one.currency for one in rows if one.currency), "")
        return _Seen(rows, counts, sum(one.gpus for one in rows), sum(costs) if costs else None, currency)

    @staticmethod
    def _kept(held: dict[K, V], key: K, make: Callable[[], V]) -> V:
        """The same for everybody who asks for it; bounded."""
        if key not in held:
            if len(held) >= MAX_KEPT:
                held.clear()
            held[key] = make()
        return held[key]

    def _shown(self, one: TableRow, reading: ModelNumbers) -> dict[str, Any]:
        rests = self._resting.get(one.key)
        if rests is None:
            series = self._history.series(one.key, SPARKS)
            rates = [values[_COLUMNS["rate"]] for values in series.rows]
            rests = self._resting[one.key] = asdict(one) | {"sparks": rates, "sparkStep": STEP_S}
        return rests | {
            "queue": _rounded(one.queue if reading.waiting is None else reading.waiting),
            "gpu": _rounded(one.gpu if reading.gpu is None else reading.gpu),
            "batch": _rounded(one.batch if reading.batch is None else reading.batch),
            "rate": _rounded(reading.rate),
            "latency": _rounded(reading.latency_ms),
            "errors": None if reading.errors is None else _rounded(reading.errors * 100),
        }

    def _ordered(self, rows: Iterable[TableRow], question: Question) -> list[TableRow]:
        """By the key; what isn't known last either way; equals as they were: by namespace and name."""
        known: list[tuple[Any, TableRow]] = []
        unknown: list[TableRow] = []
        for one in rows:
            value = self._value(one, question.sort)
            if value is None:
                unknown.append(one)
            else:
                known.append((value, one))
        known.sort(key=lambda pair: pair[0], reverse=question.descending)
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


def _matching(rows: Sequence[TableRow], question: Question) -> Iterable[TableRow]:
    words = question.text.split()
    for one in rows:
        if question.state and one.state != question.state:
            continue
        if words:
            text = f"{one.namespace}/{one.name} {one.reason} {one.image}".lower()
            if not all(word in text for word in words):
                continue
        yield one


def whole(query: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    """A whole number among a URL's parameters.

    Raises:
        BadQuestion: it is none, or out of bounds.
    """
    text = query.get(name, str(default))
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else -1
    if not least <= value <= most:
        raise BadQuestion(f"{name} is {text[:50]!r}; good: a number from {least} to {most}")
    return value


def _rounded(value: float | None) -> float | None:
    """To what a reader can tell apart, so that what hasn't moved to the eye isn't sent again."""
    return None if value is None else float(f"{value:.3g}")
