"""Capacity of one replica as measured by a user, stored in the ConfigMap NAME-capacity of a model. Pure.

The commands `halcyon bench` and `halcyon tune NAME --teach` write the document. The operator plans with it until
measurements from the model's traffic outweigh it. The capacity applies only to the revision, the image, the GPU product
and the number of instances that were measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from halcyon.api.timestamps import parse_rfc3339
from halcyon.api.types import ApiModel

KEY = "capacity.json"
"""Key in the ConfigMap that contains the document."""
MAX_BYTES = 4096
GPU_PRODUCT_LABEL = "nvidia.com/gpu.product"
"""Node label with the GPU product, set by NVIDIA's GPU feature discovery. A model that requires a certain product has
this label in its nodeSelector."""
_MAX_MS = 3.6e6


class MeasuredCapacityError(ValueError):
    """The document with a measured capacity can't be read, or doesn't apply to the revision that serves now."""


def _time(text: str) -> str:
    if parse_rfc3339(text) is None:
        raise ValueError("it must be a time with its zone, for example 2026-11-28T03:15:00Z")
    return text


_Name = Annotated[str, Field(max_length=512)]
_Milliseconds = Annotated[float, Field(ge=0, le=_MAX_MS, allow_inf_nan=False)]


class MeasuredLine(ApiModel):
    """Execution times measured on a replica with a certain number of model instances.

    A batch takes a constant time plus a time for each row.
    """

    instances: Annotated[int, Field(ge=1, le=1024)]
    constant_milliseconds: _Milliseconds
    per_row_milliseconds: _Milliseconds
    max_batch_size: Annotated[int, Field(ge=1, le=65536)]
    """Number of rows in the largest batch that was executed."""
    at_once: Annotated[int, Field(ge=1, le=100000)] | None = None
    """Number of requests that the replica executes at once, each of which takes the time of a batch with one row. Set
    only if Triton's batch times don't show how long requests take."""

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        if self.constant_milliseconds + self.per_row_milliseconds < 0.001:  # a microsecond
            raise ValueError("a batch of one row takes less than 0.001 ms; for example constantMilliseconds: 80")
        return self

    def seconds(self, rows: int) -> float:
        """Return the execution time of a batch of `rows` rows, in seconds."""
        return (self.constant_milliseconds + self.per_row_milliseconds * rows) / 1000

    def batch_times(self) -> dict[int, float] | None:
        """Return the execution times, in seconds, of the smallest and the largest batch, by number of rows.

        Return None if `at_once` is set.
        """
        return None if self.at_once is not None else {rows: self.seconds(rows) for rows in (1, self.max_batch_size)}

    def answers(self) -> tuple[float, float] | None:
        """Return the number of requests that the replica executes at once, and the seconds that each of them takes.

        Return None if `at_once` is not set.
        """
        return None if self.at_once is None else (float(self.at_once), self.seconds(1))


class MeasuredCapacity(ApiModel):
    """Document with the measured capacity of a replica."""

    version: Literal[1] = 1
    source: Literal["bench", "tune"]
    """Command that measured the capacity: `halcyon bench` or `halcyon tune`."""
    measured_at: Annotated[str, Field(max_length=64), AfterValidator(_time)]
    """Time of the measurement in RFC 3339."""
    revision: _Name
    """Name of the ControllerRevision whose pods were measured."""
    image: _Name
    """Triton image with which the measurement was made."""
    gpu_product: _Name | None = None
    """GPU product of the node, from its label nvidia.com/gpu.product; None if the node has no such label."""
    lines: Annotated[tuple[MeasuredLine, ...], Field(min_length=1, max_length=8)]
    """Measured execution times. There is at most one entry for each number of model instances."""

    @model_validator(mode="after")
    def _has_unique_instances(self) -> Self:
        counts = [line.instances for line in self.lines]
        if len(set(counts)) < len(counts):
            raise ValueError(f"lines has two entries for {max(counts, key=counts.count)} instances; keep one")
        return self


@dataclass(frozen=True)
class Served:
    """Properties of a model's serving replicas, which must be equal to those of the measured replicas."""

    revision: str = ""
    """Name of the ControllerRevision; empty if no revision serves yet."""
    image: str = ""
    gpu_product: str = ""
    """GPU product that the spec's nodeSelector names; empty if it names none."""
    instances: int = 1
    """Number of instances of the model in one replica."""


def encoded(document: MeasuredCapacity) -> str:
    """Return the document as one line of JSON, at most `MAX_BYTES` long.

    Raises:
        MeasuredCapacityError: the document is longer.
    """
    text = document.model_dump_json(by_alias=True, exclude_none=True)
    if len(text.encode()) > MAX_BYTES:
        raise MeasuredCapacityError(f"{KEY} would have {len(text.encode())} bytes; the limit is {MAX_BYTES}")
    return text


def read(config_map: Mapping[str, Any]) -> MeasuredCapacity:
    """Return the document in a ConfigMap.

    Raises:
        MeasuredCapacityError: the ConfigMap has no document, or an invalid one; the message names the field, its value
            and the limit.
    """
    data = config_map.get("data")
    text = data.get(KEY) if isinstance(data, Mapping) else None
    if not isinstance(text, str):
        raise MeasuredCapacityError(f"it has no key {KEY}; halcyon bench NAME --teach writes it")
    if (size := len(text.encode())) > MAX_BYTES:
        raise MeasuredCapacityError(f"{KEY} has {size} bytes; the limit is {MAX_BYTES}")
    try:
        return MeasuredCapacity.model_validate_json(text)
    except ValidationError as error:
        # An unknown version is the cause of all other errors.
        cause = min(error.errors(include_url=False), key=lambda details: details["loc"] != ("version",))
        field = ".".join(map(str, cause["loc"])) or KEY
        has_value = cause["loc"] and cause["type"] not in {"json_invalid", "missing"}
        shown = f" is {str(cause['input'])[:60]!r}" if has_value else ""
        raise MeasuredCapacityError(f"{field}{shown}: {cause['msg']}") from None


def line_for(document: MeasuredCapacity, served: Served) -> MeasuredLine:
    """Return the execution times that were measured with the revision, image, GPU and instances in `served`.

    Raises:
        MeasuredCapacityError: the document has no times for these properties.
    """
    for label, measured, current in (
        ("revision", document.revision, served.revision),
        ("image", document.image, served.image),
        # A spec that names no product may get the measured one.
        ("GPU product", document.gpu_product or "", served.gpu_product or document.gpu_product or ""),
    ):
        if measured != current:
            raise MeasuredCapacityError(
                f"it was measured with {label} {measured or 'none'}, but the model serves with {current or 'none'}"
            )
    for line in document.lines:
        if line.instances == served.instances:
            return line
    counts = ", ".join(str(line.instances) for line in document.lines)
    raise MeasuredCapacityError(
        f"it was measured with {counts} instances in a replica, but spec.runtime.instancesPerGPU gives {served.instances}"
    )
