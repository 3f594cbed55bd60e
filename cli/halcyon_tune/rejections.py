"""Removal of values that the site rejects from the search space. Pure.

Each value of each field is tried separately. Out of scope: the component that rejects a value, for example an admission
policy (`halcyon_cli.bench.tune_run`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from halcyon_tune.points import Configuration
from halcyon_tune.space import BATCHING, INSTANCES, THREADS, LeftOut, Space

_FIELDS: Mapping[str, tuple[str, str]] = {
    "max_batch": ("batching.maxBatchSize", BATCHING),
    "delay_s": ("batching.maxQueueDelay", BATCHING),
    "instances": ("runtime.instancesPerGPU", INSTANCES),
    "threads": ("model.parameters", THREADS),
}
"""Field of the spec for each attribute of a configuration, and the name of the field's group in `Space.tuned`."""


@dataclass(frozen=True)
class TriedValue:
    """Current configuration with another value in one field."""

    attribute: str
    configuration: Configuration

    @property
    def value(self) -> Any:
        """Value of the field that differs from the current configuration."""
        return getattr(self.configuration, self.attribute)


def tried_values(space: Space) -> Iterator[TriedValue]:
    """Yield each value in a search space that differs from the current configuration's value."""
    for attribute in _FIELDS:
        current = getattr(space.today, attribute)
        for value in sorted(
            {getattr(configuration, attribute) for configuration in space.configurations} - {current, None}
        ):
            yield TriedValue(attribute, replace(space.today, **{attribute: value}))


def without(space: Space, rejected: Sequence[tuple[TriedValue, str]]) -> Space:
    """Return a search space without the values that the site rejects. Each rejected value is given with its reason."""
    if not rejected:
        return space
    values = {(trial.attribute, trial.value) for trial, _ in rejected}
    remaining = tuple(
        configuration
        for configuration in space.configurations
        if configuration == space.today or not any(getattr(configuration, name) == value for name, value in values)
    )
    left_out = list(space.left_out)
    for attribute, (field, _) in _FIELDS.items():
        matching = [(trial, why) for trial, why in rejected if trial.attribute == attribute]
        if matching:
            rejected_values = ", ".join(_text(trial) for trial, _ in matching)
            left_out.append(LeftOut(field, f"the site rejects {rejected_values}: {matching[0][1]}"))
    groups = {
        group
        for name, (_, group) in _FIELDS.items()
        if len({getattr(configuration, name) for configuration in remaining}) > 1
    }
    tuned = tuple(name for name in space.tuned if name in groups)
    return replace(space, configurations=remaining, left_out=tuple(left_out), tuned=tuned)


def _text(trial: TriedValue) -> str:
    return f"{1000 * trial.value:.3g} ms" if trial.attribute == "delay_s" else str(trial.value)
