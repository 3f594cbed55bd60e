"""Table of models with filtering, sorting and paging, and the totals over its rows.

Pure, except for a cache of unchanged models.

Out of scope: which models a user may see (`authorization`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar, get_args

from halcyon.api.timestamps import epoch_seconds
from halcyon.dashboard.history import FIELDS, NO_LOAD, ChartHistory, CurrentLoad
from halcyon.dashboard.model_row import (
    PROBLEMS,
    STATES,
    UNHEALTHY,
    State,
    TableRow,
    problems,
    rounded,
    row_or_unreadable,
    totals,
)
from halcyon.dashboard.ports import DashboardSource, Name

ProblemFilter = Literal["any", "unhealthy", "unready", "errors", "slow", "stalled", "blind", "limited"]
"""Filter of the table by problem. `any` selects models with at least one problem, and `unhealthy` selects models that
are unready or stalled. Any other value selects the models with the problem of this name."""
PROBLEM_FILTERS: tuple[ProblemFilter, ...] = get_args(ProblemFilter)
SortKey = Literal[
    "urgency",
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
SORT_KEYS: tuple[SortKey, ...] = get_args(SortKey)
MAX_ROWS = 200
"""Maximum number of rows on a page."""
MAX_TEXT_LENGTH = 200
"""Maximum length of the filter text, in characters."""
MAX_NAMESPACE_LENGTH = 63
SPARK_POINTS = 60
"""Number of points in the small chart in a row of the table. The points cover ten minutes."""
MAX_CACHED = 64
"""Maximum number of query results in the cache. Requests with the same parameters share a result."""
_FIELDS = {"queue": "waiting", "latency": "p99"}
_COLUMNS = {key: FIELDS.index(_FIELDS.get(key, key)) for key in ("gpu", "rate", "queue", "latency", "batch", "errors")}

_ROW_VALUES: Mapping[str, Callable[[TableRow], Any]] = {
    "state": lambda row: STATES.index(row.state),
    "name": lambda row: (row.name, row.namespace),
    "namespace": lambda row: (row.namespace, row.name),
    "replicas": lambda row: row.replicas,
    "gpus": lambda row: row.gpus,
    "cost": lambda row: row.cost,
    "age": lambda row: _age_order(row.created),
}
"""Values of the columns that are in the row itself. The other columns are in the history."""

K = TypeVar("K")
V = TypeVar("V")


class InvalidQuery(ValueError):  # noqa: N818  # an answer (400), not a fault
    """A query parameter of a request is invalid (400); the message has a valid example."""


@dataclass(frozen=True, slots=True)
class TableQuery:
    """Filter, sort order and page of the table."""

    text: str = ""
    """Words that must all occur in the namespace, name, reason or image of a model."""
    namespace: str = ""
    state: State | Literal[""] = ""
    problem: ProblemFilter | Literal[""] = ""
    sort: SortKey = "urgency"
    descending: bool = False
    offset: int = 0
    limit: int = 100

    @classmethod
    def of(cls, query: Mapping[str, str]) -> TableQuery:
        """Parse the query parameters of a URL.

        Raises:
            InvalidQuery: a parameter is invalid.
        """
        state, sort = query.get("state", ""), query.get("sort", "urgency")
        problem, namespace = query.get("problem", ""), query.get("namespace", "")
        order = query.get("order", "ascending")
        if state and state not in STATES:
            raise InvalidQuery(f"state is {state[:50]!r}; it must be one of {', '.join(STATES)}")
        if problem and problem not in PROBLEM_FILTERS:
            raise InvalidQuery(f"problem is {problem[:50]!r}; it must be one of {', '.join(PROBLEM_FILTERS)}")
        if len(namespace) > MAX_NAMESPACE_LENGTH:
            raise InvalidQuery(f"namespace has {len(namespace)} characters; the limit is {MAX_NAMESPACE_LENGTH}")
        if sort not in SORT_KEYS:
            raise InvalidQuery(f"sort is {sort[:50]!r}; it must be one of {', '.join(SORT_KEYS)}")
        if order not in {"ascending", "descending"}:
            raise InvalidQuery(f"order is {order[:50]!r}; it must be ascending or descending")
        if len(query.get("text", "")) > MAX_TEXT_LENGTH:
            raise InvalidQuery(f"text has {len(query['text'])} characters; the limit is {MAX_TEXT_LENGTH}")
        return cls(
            text=query.get("text", "").lower(),
            namespace=namespace,
            state=state,
            problem=problem,
            sort=sort,
            descending=order == "descending",
            offset=int_parameter(query, "offset", 0, 0, 1_000_000),
            limit=int_parameter(query, "limit", 100, 1, MAX_ROWS),
        )


@dataclass(frozen=True, slots=True)
class _VisibleModels:
    """Rows of the models that a user may see, in one namespace or in all of them."""

    rows: list[TableRow]
    """Rows of the visible models, sorted by namespace and name."""
    totals: dict[str, Any]


def cached(cache: dict[K, V], key: K, make: Callable[[], V]) -> V:
    """Return the cached result for the key, or compute and cache it. The cache holds at most `MAX_CACHED` results."""
    if key not in cache:
        if len(cache) >= MAX_CACHED:
            cache.clear()
        cache[key] = make()
    return cache[key]


class Fleet:
    """Rows of all models. They are updated at most once a second, so that many open pages cost little more than one."""

    def __init__(self, history: ChartHistory) -> None:
        self._history = history
        self._changes = self._step = self._second = -1
        self._rows: dict[Name, tuple[str, TableRow]] = {}
        self._visible: dict[tuple[frozenset[str] | None, str], _VisibleModels] = {}
        self._loads: dict[Name, CurrentLoad] = {}
        """Load of each model in the newest step of the history."""
        self._orders: dict[tuple[object, ...], list[TableRow]] = {}
        self._static_parts: dict[Name, tuple[TableRow, dict[str, Any]]] = {}
        """Parts of the rows' documents that stay the same within a step of the history, each with its row."""
        self._documents: dict[Name, dict[str, Any]] = {}
        """Documents of the rows that were returned in the current second."""

    def page(
        self, query: TableQuery, source: DashboardSource, *, namespaces: frozenset[str] | None, step: int, second: int
    ) -> dict[str, Any]:
        """Return the JSON document for a page of the table. All calls in one second return the same values.

        The current numbers of `source` are read only for the rows on the page. `namespaces` are those that the user may
        see; None means all. `step` is the number of steps in the history so far, `second` the time in whole seconds.
        """
        if second != self._second:
            self._second = second
            self._documents.clear()
            self._refresh(source, step)
        scope = (namespaces, query.namespace)
        visible = cached(self._visible, scope, lambda: self._select_visible(*scope))
        order = (*scope, query.text, query.state, query.problem, query.sort, query.descending)
        matched = cached(self._orders, order, lambda: self._sorted(self._matching(visible.rows, query), query))
        rows = matched[query.offset : query.offset + query.limit]
        return visible.totals | {
            "namespaces": sorted({n.namespace for n in self._rows if namespaces is None or n.namespace in namespaces}),
            "matched": len(matched),
            "offset": query.offset,
            "rows": [self._document(row, source) for row in rows],
        }

    def _refresh(self, source: DashboardSource, step: int) -> None:
        """Read the models that have changed; at a new step of the history, also read the loads of all models."""
        if (source.changes, step) == (self._changes, self._step):
            return
        if source.changes != self._changes:
            rows: dict[Name, tuple[str, TableRow]] = {}
            for name in source.names():
                held = self._rows.get(name)
                if held is None or held[0] != source.version(name):
                    obj = source.model(name)
                    held = None if obj is None else (obj["metadata"]["resourceVersion"], row_or_unreadable(name, obj))
                if held is not None:
                    rows[name] = held
            self._rows = rows
        if step != self._step:
            self._static_parts.clear()
            self._loads.clear()
        # Loads change with the step only, and reading all of them takes most of the time of a step.
        self._loads = {name: self._loads.get(name) or self._history.load(name) for name in self._rows}
        self._changes, self._step = source.changes, step
        self._visible.clear()
        self._orders.clear()

    def _select_visible(self, namespaces: frozenset[str] | None, namespace: str) -> _VisibleModels:
        rows = [
            self._rows[name][1]
            for name in sorted(self._rows)
            if (namespaces is None or name.namespace in namespaces) and namespace in {"", name.namespace}
        ]
        return _VisibleModels(rows, totals(rows, self._loads))

    def _document(self, row: TableRow, source: DashboardSource) -> dict[str, Any]:
        if row.key in self._documents:
            return self._documents[row.key]
        of_row, static = self._static_parts.get(row.key, (None, {}))
        if of_row is not row:
            series = self._history.series(row.key, SPARK_POINTS)
            static = asdict(row) | {"sparks": [values[_COLUMNS["rate"]] for values in series.rows]}
            self._static_parts[row.key] = (row, static)
        newest, numbers = self._history.newest(row.key), source.reading(row.key)
        document = self._documents[row.key] = static | {
            "queue": rounded(row.queue if numbers.waiting is None else numbers.waiting),
            "gpu": rounded(row.gpu if numbers.gpu is None else numbers.gpu),
            "batch": rounded(row.batch if numbers.batch is None else numbers.batch),
            "rate": rounded(numbers.rate),
            "latency": rounded(None if newest is None else newest[_COLUMNS["latency"]]),
            "in_triton": rounded(numbers.latency_ms),
            "errors": None if numbers.errors is None else rounded(numbers.errors * 100),
            "problems": problems(row, self._loads.get(row.key, NO_LOAD)),
        }
        return document

    def _urgency(self, row: TableRow) -> tuple[int, int, float]:
        """Return a key that sorts models by urgency.

        Models with problems come first, ordered by their most urgent problem and then by state. Models with the same
        problem and state are ordered by request rate, highest first.
        """
        load = self._loads.get(row.key, NO_LOAD)
        row_problems = problems(row, load)
        first = PROBLEMS.index(row_problems[0]) if row_problems else len(PROBLEMS)
        return first, STATES.index(row.state), -(load.rate or 0.0)

    def _matching(self, rows: Sequence[TableRow], query: TableQuery) -> Iterable[TableRow]:
        words = query.text.split()
        for row in rows:
            if query.state and row.state != query.state:
                continue
            if query.problem:
                row_problems = problems(row, self._loads.get(row.key, NO_LOAD))
                groups = {"any"} if row_problems else set()
                groups |= {"unhealthy"} if row.state in UNHEALTHY else set()
                if query.problem not in {*row_problems, *groups}:
                    continue
            text = f"{row.namespace}/{row.name} {row.reason} {row.image}".lower() if words else ""
            if all(word in text for word in words):
                yield row

    def _sorted(self, rows: Iterable[TableRow], query: TableQuery) -> list[TableRow]:
        """Return the rows in the order of the query.

        Unknown values come last in both directions. Rows with equal values are sorted by namespace and name.
        """
        ranked: list[tuple[Any, TableRow]] = []
        unranked: list[TableRow] = []
        for row in rows:
            value = self._value(row, query.sort)
            if value is None:
                unranked.append(row)
            else:
                ranked.append((value, row))
        ranked.sort(key=lambda pair: pair[0], reverse=query.descending)
        return [row for _, row in ranked] + unranked

    def _value(self, row: TableRow, sort: SortKey) -> Any:
        if sort == "urgency":
            return self._urgency(row)
        if sort in _ROW_VALUES:
            return _ROW_VALUES[sort](row)
        newest = self._history.newest(row.key)
        value = None if newest is None else newest[_COLUMNS[sort]]
        return {"queue": row.queue, "gpu": row.gpu, "batch": row.batch}.get(sort) if value is None else value


def _age_order(created: str) -> float | None:
    """Return a number that grows with the age of a model; None if its creation time is unknown."""
    return None if (created_at := epoch_seconds(created)) is None else -created_at


def int_parameter(query: Mapping[str, str], name: str, default: int, minimum: int, maximum: int) -> int:
    """Return the value of an integer parameter in a URL.

    Raises:
        InvalidQuery: the value is not an integer, or out of range.
    """
    text = query.get(name, str(default))
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else -1
    if not minimum <= value <= maximum:
        raise InvalidQuery(f"{name} is {text[:50]!r}; it must be a number from {minimum} to {maximum}")
    return value
