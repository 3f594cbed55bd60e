"""Overlay document: the settings of a ModelDeployment that are merged into the model's config.pbtxt.

The operator writes the overlay to a ConfigMap. The fetcher in the pod merges it (`halcyon.model_config.merge`). The
module imports only the standard library, because slow imports of the fetcher would delay every cold start.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from inspect import signature
from typing import Any, Literal, TypeVar

OVERLAY_VERSION = 1

DATA_TYPES = frozenset(
    ("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "BF16", "FP32", "FP64", "STRING")
)  # fmt: skip
"""Names of Triton's data types, without the prefix `TYPE_`."""

_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_BACKEND = re.compile(r"[a-z][a-z0-9_]{0,62}")
_INT32, _INT64 = 2**31 - 1, 2**63 - 1

_T = TypeVar("_T")


class OverlayError(ValueError):
    """The document is not an overlay, or has a version or a field that is not supported."""


@dataclass(frozen=True)
class OverlayQueuePolicy:
    """Policy of Triton's queue. A field that is not set keeps the value in the model's own configuration."""

    delay: bool | None = None
    """Whether a request whose timeout has passed is moved to the end of the queue. If false, it is rejected."""
    timeout_us: int | None = None
    """Maximum time that a request waits in Triton's queue, in microseconds."""
    allow_timeout_override: bool | None = None
    max_queue_size: int | None = None


@dataclass(frozen=True)
class DynamicBatching:
    """Settings of dynamic batching. Their presence enables dynamic batching.

    A setting that is not given keeps the value in the model's own configuration.
    """

    max_queue_delay_us: int | None = None
    """Maximum time that a batch may wait to fill, in microseconds."""
    preferred_batch_sizes: tuple[int, ...] = ()
    """Preferred batch sizes, in rows; empty if not set."""
    preserve_ordering: bool | None = None
    priority_levels: int | None = None
    default_priority_level: int | None = None
    queue_policy: OverlayQueuePolicy | None = None


@dataclass(frozen=True)
class VersionPolicy:
    """Versions of the model that Triton serves. Exactly one of the fields is set."""

    latest: int | None = None
    """Number of versions to serve, counted from the highest version number down."""
    specific: tuple[int, ...] = ()
    """Version numbers of the model to serve."""
    all: bool = False


@dataclass(frozen=True)
class OverlayInput:
    """Input tensor of the warm-up requests."""

    name: str
    data_type: str
    """Data type of the tensor, one of `DATA_TYPES`."""
    dims: tuple[int, ...]
    """Shape of the tensor without the batch dimension. -1 means a variable dimension, for which the warm-up uses 1."""


@dataclass(frozen=True)
class OverlayWarmup:
    """Warm-up requests, which Triton executes before the model is ready. They replace those in the model's own configuration."""

    batch_sizes: tuple[int, ...] = ()
    """Batch sizes of the warm-up requests, in rows. If empty, the sizes are 1 and the maximum batch size."""
    iterations: int = 2
    """Number of requests for each batch size."""
    data: Literal["zero", "random"] = "zero"
    """Content of the input tensors of warm-up requests, for example zeros."""
    inputs: tuple[OverlayInput, ...] = ()
    """Input tensors of the warm-up requests. If empty, the inputs in the model's own configuration are used."""


@dataclass(frozen=True)
class Overlay:
    """Settings that replace those in the model's own configuration. A setting that is None or empty replaces nothing."""

    model_name: str
    """Name of the model in Triton, and of its folder in the repository."""
    max_batch_size: int | None = None
    """Maximum number of rows in one batch."""
    dynamic_batching: DynamicBatching | None = None
    instances: int | None = None
    """Number of model instances per GPU, or per pod on CPU."""
    version_policy: VersionPolicy | None = None
    backend: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    warmup: OverlayWarmup | None = None
    response_cache: bool | None = None
    millicores: int | None = None
    """CPU limit of a model without GPUs, in thousandths of a core. It determines the number of threads per instance if
    the model's configuration doesn't set one."""

    @property
    def is_empty(self) -> bool:
        """Whether the overlay replaces nothing but the model's name."""
        return replace(self, parameters=dict(self.parameters), millicores=None) == Overlay(self.model_name)

    def to_json(self) -> str:
        """Return the overlay as one line of JSON.

        The keys are sorted and there are no spaces, so that equal overlays have equal text.
        """
        plain = asdict(replace(self, parameters=dict(self.parameters)), dict_factory=_without_unset)
        return json.dumps({"version": OVERLAY_VERSION, **plain}, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Overlay:
        """Parse an overlay.

        Raises:
            OverlayError: the text is not an overlay, has another version, or has an unknown field or an invalid value.
        """
        try:
            raw = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise OverlayError(f"overlay: not JSON: {error}") from error
        document = _mapping(raw, "overlay")
        version = document.pop("version", None)
        if version is None:
            raise OverlayError("overlay.version is missing")
        if _integer(0, _INT32)(version, "overlay.version") != OVERLAY_VERSION:
            raise OverlayError(f"overlay.version is {version}; this fetcher reads version {OVERLAY_VERSION}")
        return _overlay(document, "overlay")


_ADDED = ("priority_levels", "default_priority_level", "queue_policy", "response_cache", "millicores")
"""Fields that are omitted from the document if they are not set. Overlays that don't use these fields therefore have
the same text as in earlier versions, and an upgrade restarts no pods."""


def _without_unset(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in pairs if value is not None or name not in _ADDED}


_Check = Callable[[Any, str], _T]
"""Function that converts a JSON value to the value of a field, or raises OverlayError. Its second argument is the path
of the field, for error messages."""


def _mapping(value: object, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(path, value, 'an object, for example {"version":1,"model_name":"digits"}')
    return dict(value)


def _object(factory: Callable[..., _T], **checks: _Check[Any]) -> _Check[_T]:
    """Return a function that converts a JSON object to an instance of the dataclass `factory`.

    `checks` has the function for each field. A field whose value is null counts as missing.
    """
    parameters = signature(factory).parameters.values()
    required = [parameter.name for parameter in parameters if parameter.default is parameter.empty]

    def check(value: object, path: str) -> _T:
        fields = {
            name: entry for name, entry in _mapping(value, path).items() if entry is not None or name not in checks
        }
        for name in required:
            if name not in fields:
                raise OverlayError(f"{path}.{name} is missing")
        values = {name: checks[name](fields.pop(name), f"{path}.{name}") for name in checks if name in fields}
        if fields:
            raise OverlayError(f"{path} has unknown fields: {', '.join(sorted(fields))}")
        return factory(**values)

    return check


def _wrong(path: str, value: object, expected: str) -> OverlayError:
    shown = json.dumps(value)
    return OverlayError(f"{path} is {shown if len(shown) <= 80 else shown[:77] + '...'}; it must be {expected}")


def _integer(low: int, high: int) -> _Check[int]:
    def check(value: object, path: str) -> int:
        if type(value) is not int or not low <= value <= high:  # True and False are ints to isinstance
            raise _wrong(path, value, f"a whole number from {low} to {high}")
        return value

    return check


def _matching(pattern: re.Pattern[str], good: str) -> _Check[str]:
    def check(value: object, path: str) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise _wrong(path, value, f"a string that matches {pattern.pattern}, for example {good}")
        return value

    return check


def _instance(kind: type[_T], expected: str) -> _Check[_T]:
    def check(value: object, path: str) -> _T:
        if not isinstance(value, kind):
            raise _wrong(path, value, expected)
        return value

    return check


_text, _boolean = _instance(str, "text"), _instance(bool, "true or false")


def _list(item: _Check[_T]) -> _Check[tuple[_T, ...]]:
    def check(value: object, path: str) -> tuple[_T, ...]:
        if not isinstance(value, list):
            raise _wrong(path, value, "a list")
        return tuple(item(entry, f"{path}[{index}]") for index, entry in enumerate(value))

    return check


def _choice(*allowed: str) -> _Check[str]:
    def check(value: object, path: str) -> str:
        if value not in allowed:
            raise _wrong(path, value, f"one of {', '.join(allowed)}")
        return value

    return check


def _version_policy(value: object, path: str) -> VersionPolicy:
    policy = _object(VersionPolicy, latest=_integer(1, _INT32), specific=_list(_integer(0, _INT64)), all=_boolean)(
        value, path
    )
    if (policy.latest is not None) + bool(policy.specific) + policy.all != 1:
        raise _wrong(path, value, 'exactly one of latest, specific and all, for example {"latest":1}')
    return policy


def _parameters(value: object, path: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise _wrong(path, value, "an object of strings")
    return {key: _text(entry, f"{path}[{key}]") for key, entry in value.items()}


_queue_policy = _object(
    OverlayQueuePolicy,
    delay=_boolean,
    timeout_us=_integer(0, _INT64),
    allow_timeout_override=_boolean,
    max_queue_size=_integer(1, _INT32),
)
_dynamic_batching = _object(
    DynamicBatching,
    max_queue_delay_us=_integer(0, _INT64),
    preferred_batch_sizes=_list(_integer(1, _INT32)),
    preserve_ordering=_boolean,
    priority_levels=_integer(1, _INT32),
    default_priority_level=_integer(1, _INT32),
    queue_policy=_queue_policy,
)
_warmup = _object(
    OverlayWarmup,
    batch_sizes=_list(_integer(1, _INT32)),
    iterations=_integer(1, _INT32),
    data=_choice("zero", "random"),
    inputs=_list(
        _object(OverlayInput, name=_text, data_type=_choice(*sorted(DATA_TYPES)), dims=_list(_integer(-1, _INT64)))
    ),
)
_overlay = _object(
    Overlay,
    model_name=_matching(_MODEL_NAME, "digits"),
    max_batch_size=_integer(1, _INT32),
    dynamic_batching=_dynamic_batching,
    instances=_integer(1, _INT32),
    version_policy=_version_policy,
    backend=_matching(_BACKEND, "onnxruntime"),
    parameters=_parameters,
    warmup=_warmup,
    response_cache=_boolean,
    millicores=_integer(1, _INT32),
)
