"""Serialization of the planner's memory as JSON, so that it survives a restart, in less than `MAX_BYTES`.

    {"version": 1, "arrivals": {...}, "capacity": {...}, ... one object per part of `PlannerMemory`}

Fields are matched by name, so a version that adds a field can read memories written by an older one. Each part is
restored completely or not at all, because half of a part would be a state that never existed. A part that can't be
read, or that is invalid for planning, starts from scratch, and the reason is returned.

Numbers are stored with 9 digits, and times to the millisecond. If the document is too large, it is reduced in this
order: fewer fine samples, no names of started pods, no batch counters, no open forecasts, fewer days. Out of scope:
where the document is stored.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from halcyon.scaling.planner.forecast.arrival_rate import ArrivalRate
from halcyon.scaling.planner.forecast.recurring_spikes import SpikeMemory
from halcyon.scaling.planner.forecast.seasonality import MAX_BINS, History
from halcyon.scaling.planner.invariants import broken_invariant
from halcyon.scaling.planner.outputs import PlannerMemory
from halcyon.scaling.planner.scale_down_hold import ScaleDownHold

VERSION = 1
"""Version of the format of a stored memory. Memories with any other version are rejected."""
MAX_BYTES = 40 * 1024
"""Maximum size of a stored memory in bytes, as compact JSON. A Kubernetes object can hold 1 MiB, but requests with the
memory must stay fast."""
MAX_SAMPLES = 128
"""Maximum number of fine samples of the arrivals that are stored. With one sample per second, there are only 71."""
MAX_NEEDS = 64
"""Maximum number of recent needs for replicas that are stored: one per second for a minute. If there are more,
neighbouring ones are merged."""
_MANY = 32
"""Minimum length of a list of numbers that is converted as a whole, which is faster than converting each number."""
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_DIGIT = {character: value for value, character in enumerate(_ALPHABET)}
_UNKNOWN, _ZERO, _FIRST = 0, 1, 2
"""Codes for the mean rate in a bin: for an unknown mean, for zero, and for the lowest positive number. A positive
number has the code `_FIRST` + 900 x (exponent + `_EXPONENTS`) + (three digits - 100)."""
_EXPONENTS = 140
"""Maximum absolute exponent of ten that the code of a mean rate can represent."""
_LATER = frozenset({"damping", "evidence", "rejections", "zero"})
"""Names of the parts of the memory that were added to the format later. If a stored memory lacks one of them, it was
written before the part existed, and nothing was lost."""


@dataclass(frozen=True, slots=True)
class Restored:
    """Result of restoring a stored memory."""

    memory: PlannerMemory
    problems: tuple[str, ...] = ()
    """Reasons why parts of the memory could not be read, one sentence per part."""


class _UnreadableError(ValueError):
    """Error raised if a stored value has the wrong type or is invalid."""


def packed(memory: PlannerMemory) -> dict[str, Any]:
    """Return the planner's memory as JSON values, about 21 KB after two weeks of samples.

    Call the function every few minutes and not for each decision, because it takes about 12 ms.
    """
    memory = replace(
        memory,
        arrivals=_thinned(memory.arrivals),
        hold=_fewer(memory.hold),
        drain=_fewer(memory.drain),
        evidence=memory.evidence.shifted(0.0),
    )
    document: dict[str, Any] = {"version": VERSION}
    for part in fields(PlannerMemory):
        value = getattr(memory, part.name)
        pack = _PACK.get(type(value))
        document[part.name] = _encoded(value) if pack is None else pack(value)
    for part_name, field, less in _LESS:
        while _size(document) >= MAX_BYTES and document[part_name][field]:
            document[part_name][field] = less(document[part_name][field])
    return document


def unpacked(document: object) -> Restored:
    """Restore the planner's memory from the result of `packed`.

    The function never fails. A part that can't be read starts from scratch.
    """
    fresh = PlannerMemory()
    if not isinstance(document, dict):
        return Restored(fresh, (f"the memory is {_shown(document)}, not a JSON object",))
    if document.get("version") != VERSION:
        reason = f"version is {_shown(document.get('version'))}; this Halcyon reads version {VERSION}"
        return Restored(fresh, (reason,))
    parts: dict[str, Any] = {}
    problems: list[str] = []
    for part in fields(PlannerMemory):
        if part.name not in document:
            if part.name in _LATER:
                continue
            problems.append(f"{part.name} is missing; it starts from scratch")
            continue
        base = getattr(fresh, part.name)
        try:
            parts[part.name] = _part(base, document[part.name], part.name)
        except _BROKEN as error:
            reason = str(error) if isinstance(error, _UnreadableError) else f"{part.name} can't be read ({error!r})"
            problems.append(f"{reason}; {part.name} starts from scratch")
    return Restored(replace(fresh, **parts), tuple(problems))


def resumed(memory: PlannerMemory) -> PlannerMemory:
    """Return the planner's memory for a process whose counters have restarted, such as the next leader.

    The stored batch counters are dropped, because they belong to the previous process. Their difference from the new
    counters would not be the time of any batch.
    """
    return replace(memory, capacity=replace(memory.capacity, seen=()))


_BROKEN = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError)


def _part(base: Any, raw: Any, path: str) -> Any:
    unpack = _UNPACK.get(type(base))
    if unpack is None:
        part = _decoded(type(base), raw, path, base)
    else:
        if not isinstance(raw, dict):
            raise _UnreadableError(f"{path} is {_shown(raw)}, not an object")
        part = unpack(raw)
        # `unpack` only checks the structure, so the values are checked here.
        checked = _decoded(type(base), _encoded(part), path, base)
        # The unpacked bins share equal numbers with the histories of other models, which saves 100 KiB a model.
        part = replace(checked, bins=part.bins) if isinstance(part, History) else checked
    if (reason := broken_invariant(part)) is not None:
        raise _UnreadableError(f"{path} is inconsistent: {reason}")
    return part


# Parts that are stored field by field.


def _encoded(value: Any) -> Any:
    if isinstance(value, bool | str | int) or value is None:
        return value
    if isinstance(value, float):
        return _short(value)
    if isinstance(value, frozenset):
        return _by_prefix(value)
    if isinstance(value, tuple):
        if len(value) >= _MANY and {*map(type, value)} <= {float, types.NoneType}:
            codes = {number: _encoded(number) for number in set(value)}
            return [codes[number] for number in value]
        return [_encoded(item) for item in value]
    return {field.name: _encoded(getattr(value, field.name)) for field in fields(value) if field.init}


def _short(value: float) -> float | str:
    if not math.isfinite(value):
        return str(value)
    rounded = round(value, 3) if abs(value) >= 1e6 else float(f"{value:.9g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 2.0**53 else rounded


def _decoded(hint: Any, raw: Any, path: str, base: Any = None) -> Any:  # noqa: C901  # a table of types
    """Return the JSON value `raw` converted to the type `hint`.

    Raise ValueError if the value has a different type or is not finite.
    """
    origin = get_origin(hint)
    if origin in {Union, types.UnionType}:
        options = get_args(hint)
        if raw is None and types.NoneType in options:
            return None
        types_left = [option for option in options if option is not types.NoneType]
        if len(types_left) > 1:
            types_left = [option for option in types_left if type(raw) is option]
        return _decoded(types_left[0] if types_left else str, raw, path)
    if is_dataclass(hint):
        return _object(hint, raw, path, base)
    if hint is float:
        if isinstance(raw, int | float) and not isinstance(raw, bool) and math.isfinite(raw):
            return float(raw)
    elif hint in {int, str, bool}:
        if isinstance(raw, hint) and isinstance(raw, bool) is (hint is bool):
            return raw
    elif origin is frozenset:
        return frozenset(_decoded(get_args(hint)[0], item, path) for item in _without_prefix(raw, path))
    elif origin is tuple and isinstance(raw, list):
        parts = get_args(hint)
        if parts[-1] is ...:
            return _items(parts[0], raw, path)
        if len(parts) == len(raw):
            return tuple(
                [_decoded(part, item, f"{path}[{i}]") for i, (part, item) in enumerate(zip(parts, raw, strict=True))]
            )
    raise _UnreadableError(f"{path} is {_shown(raw)}, which is not a valid {hint if origin else hint.__name__}")


def _items(hint: Any, raw: list[Any], path: str) -> tuple[Any, ...]:
    """Return the items of a list, each converted to the type `hint`."""
    if len(raw) >= _MANY and (numbers := _numbers(hint, raw)) is not None:
        return numbers
    return tuple([_decoded(hint, item, f"{path}[{i}]") for i, item in enumerate(raw)])


def _numbers(hint: Any, raw: list[Any]) -> tuple[float | None, ...] | None:
    """Return the numbers in a long list, with equal numbers as one object. Return None if an item isn't a valid `hint`.

    A history has thousands of numbers. Converting them one by one would delay the decisions of all models after a
    start.
    """
    valid = {float, int} if hint is float else {float, int, types.NoneType} if hint == float | None else set()
    if not {*map(type, raw)} <= valid:
        return None
    distinct = set(raw) - {None}
    if not all(map(math.isfinite, distinct)):
        return None
    converted: dict[float | None, float | None] = {number: float(number) for number in distinct}
    converted[None] = None
    return tuple([converted[number] for number in raw])


def _object(hint: Any, raw: Any, path: str, base: Any) -> Any:
    if not isinstance(raw, dict):
        raise _UnreadableError(f"{path} is {_shown(raw)}, not an object")
    values = {}
    hints = _hints(hint)
    for field in fields(hint):
        if not field.init:
            continue  # computed when it is next used
        if field.name not in raw:
            continue
        value, before = raw[field.name], getattr(base, field.name, None)
        # Minus infinity means "never" for these fields; no other value may be infinite.
        if isinstance(value, str) and field.default == -math.inf and value == str(-math.inf):
            values[field.name] = -math.inf
            continue
        values[field.name] = _decoded(hints[field.name], value, f"{path}.{field.name}", before)
    return replace(base, **values) if base is not None else hint(**values)


@cache
def _hints(hint: Any) -> dict[str, Any]:
    return get_type_hints(hint)


def _by_prefix(names: Iterable[str | int]) -> dict[str, list[str | int]]:
    """Group pod names by prefix, because pods of one ReplicaSet differ only in the last five characters."""
    groups: dict[str, list[str | int]] = {}
    for name in sorted(names, key=lambda name: (isinstance(name, str), name)):
        if isinstance(name, int):
            groups.setdefault("", []).append(name)
        else:
            cut = name.rfind("-") + 1
            groups.setdefault(f"{name[:cut]}*", []).append(name[cut:])
    return groups


def _without_prefix(raw: Any, path: str) -> list[Any]:
    if not isinstance(raw, dict) or not all(isinstance(items, list) for items in raw.values()):
        raise _UnreadableError(f"{path} is {_shown(raw)}, not lists of names by prefix")
    return [prefix[:-1] + item if prefix else item for prefix, items in raw.items() for item in items]


# Parts with their own format.


def _pack_history(history: History) -> dict[str, Any]:
    document: dict[str, Any] = _rounded(history.packed())
    return {**document, "bins": "".join(_code(mean) for mean in history.bins)}


def _unpack_history(document: dict[str, Any]) -> History:
    text = document["bins"]
    if not isinstance(text, str) or len(text) % 3 or len(text) > 3 * MAX_BINS:
        raise _UnreadableError(
            f"history.bins is {_shown(text)}; it has three characters per bin, for {MAX_BINS} at most"
        )
    means: dict[str, float | None] = {}
    bins = []
    for start in range(0, len(text), 3):
        code = text[start : start + 3]
        if code not in means:
            means[code] = _mean(code)
        bins.append(means[code])
    return History.unpacked({**document, "bins": bins})


def _code(mean: float | None) -> str:
    if mean is None:
        number = _UNKNOWN
    elif mean <= 0:
        number = _ZERO
    else:
        digits, exponent = f"{mean:.2e}".split("e")
        power = min(max(int(exponent) - 2 + _EXPONENTS, 0), 2 * _EXPONENTS)
        number = _FIRST + 900 * power + int(digits.replace(".", "")) - 100
    return _ALPHABET[number >> 12] + _ALPHABET[number >> 6 & 63] + _ALPHABET[number & 63]


def _mean(code: str) -> float | None:
    first, second, third = (_DIGIT[character] for character in code)
    number = first << 12 | second << 6 | third
    if number < _FIRST:
        return None if number == _UNKNOWN else 0.0
    power, digits = divmod(number - _FIRST, 900)
    return float(f"{digits + 100}e{power - _EXPONENTS}")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return _short(value) if isinstance(value, float) else value


_PACK: dict[type, Callable[[Any], dict[str, Any]]] = {
    History: _pack_history,
    SpikeMemory: lambda spikes: dict(_rounded(spikes.packed())),
}
_UNPACK: dict[type, Callable[[dict[str, Any]], Any]] = {History: _unpack_history, SpikeMemory: SpikeMemory.unpacked}


# Reductions to the maximum size.


def _thinned(arrivals: ArrivalRate) -> ArrivalRate:
    """Return the arrivals with at most `MAX_SAMPLES` samples, selected at even distances.

    The newest sample is kept.
    """
    count = len(arrivals.times)
    if count <= MAX_SAMPLES:
        return arrivals
    indexes = sorted({count - 1 - (count - 1) * i // (MAX_SAMPLES - 1) for i in range(MAX_SAMPLES)})
    return replace(
        arrivals, times=tuple(arrivals.times[i] for i in indexes), counts=tuple(arrivals.counts[i] for i in indexes)
    )


def _fewer(hold: ScaleDownHold) -> ScaleDownHold:
    """Return the state of a hold with at most `MAX_NEEDS` recent needs for replicas.

    Two neighbouring needs are merged into one with the higher number of replicas and the later time.
    """
    needs, bare = _fewer_of(hold.needs), _fewer_of(hold.bare)
    return hold if needs is hold.needs and bare is hold.bare else replace(hold, needs=needs, bare=bare)


def _fewer_of(needs: tuple[tuple[float, int], ...]) -> tuple[tuple[float, int], ...]:
    while len(needs) > MAX_NEEDS:
        pairs = [needs[i : i + 2] for i in range(0, len(needs) - 1, 2)]
        # The newest need is not merged: it is the present need.
        newest = needs[-1:] if len(needs) % 2 else pairs.pop()
        needs = (*((pair[1][0], pair[0][1]) for pair in pairs), *newest)
    return needs


def _newer_half(bins: str) -> str:
    return bins[3 * (len(bins) // 6 + 1) :]


_LESS: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (
    ("capacity", "started", lambda _: {}),
    ("capacity", "seen", lambda _: []),
    ("headroom", "due", lambda _: []),
    ("damping", "due", lambda _: []),
    ("history", "bins", _newer_half),
)
"""Ways to shrink a serialized memory that is too large, in the order in which they are tried. Each is (part, field,
function that shrinks the field)."""


def _size(document: Mapping[str, Any]) -> int:
    return len(json.dumps(document, separators=(",", ":")).encode())


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
