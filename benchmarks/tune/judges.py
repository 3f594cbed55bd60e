"""Searches without a model of queues, at the same budget: random, a small TPE and hill climbing over instances and batch.

Each of their evaluations is the capacity of a configuration with the noise of a point. It costs as many points as the
search of `halcyon bench` needs at least: one caller, saturation, a rate and its confirmation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from halcyon_tune.points import Configuration
from halcyon_tune.space import Space

EVALUATION_POINTS = 4
_RANDOM_STARTS = 4
"""Random evaluations before TPE models anything; optuna's default is 10, which would be the whole budget."""
_GOOD = 0.25
_DRAWS = 24

Measure = Callable[[Configuration], float]
Judge = Callable[[Space, Measure, int, int], Configuration]


def random_search(space: Space, measure: Measure, evaluations: int, seed: int) -> Configuration:
    """Return the best of randomly drawn configurations."""
    random = np.random.default_rng(seed)
    order = [int(index) for index in random.permutation(len(space.configurations))[:evaluations]]
    values: dict[Configuration, float] = {}
    for index in order:
        values[space.configurations[index]] = measure(space.configurations[index])
    return max(values, key=lambda configuration: values[configuration])


def tpe(space: Space, measure: Measure, evaluations: int, seed: int) -> Configuration:
    """Return the best found by a tree-structured Parzen estimator with independent dimensions."""
    random = np.random.default_rng(seed)
    values: dict[Configuration, float] = {}
    for index in random.permutation(len(space.configurations))[: min(_RANDOM_STARTS, evaluations)]:
        values[space.configurations[index]] = measure(space.configurations[index])
    while len(values) < evaluations:
        ranked = sorted(values, key=lambda configuration: -values[configuration])
        count = max(math.ceil(_GOOD * len(ranked)), 1)
        untried = [configuration for configuration in space.configurations if configuration not in values]
        if not untried:
            break
        drawn = [untried[index] for index in random.permutation(len(untried))[:_DRAWS]]
        chosen = max(
            drawn,
            key=lambda configuration: (
                _density(configuration, ranked[:count], space) / _density(configuration, ranked[count:], space)
            ),
        )
        values[chosen] = measure(chosen)
    return max(values, key=lambda configuration: values[configuration])


def hill_climbing(space: Space, measure: Measure, evaluations: int, seed: int) -> Configuration:
    """Return the best found by steps in one field from today's configuration, or from a random one once there is none."""
    random = np.random.default_rng(seed)
    values = {space.today: measure(space.today)}
    position = space.today
    while len(values) < evaluations:
        near = [
            configuration
            for configuration in space.configurations
            if configuration not in values and _steps(space, configuration, position) == 1
        ]
        if not near:
            untried = [configuration for configuration in space.configurations if configuration not in values]
            if not untried:
                break
            near = untried
        chosen = near[int(random.integers(len(near)))]
        values[chosen] = measure(chosen)
        if values[chosen] > values[position]:
            position = chosen
    return max(values, key=lambda configuration: values[configuration])


JUDGES: dict[str, Judge] = {"random": random_search, "TPE": tpe, "hill climbing": hill_climbing}


def _axes(space: Space) -> tuple[Sequence[float], Sequence[float], Sequence[float]]:
    configurations = space.configurations
    return (
        sorted({float(configuration.instances) for configuration in configurations}),
        sorted({float(configuration.max_batch) for configuration in configurations}),
        sorted({configuration.delay_s for configuration in configurations}),
    )


def _axis_positions(space: Space, configuration: Configuration) -> tuple[int, int, int]:
    counts, batches, delays = _axes(space)
    return (
        counts.index(configuration.instances),
        batches.index(configuration.max_batch),
        delays.index(configuration.delay_s),
    )


def _steps(space: Space, configuration: Configuration, other: Configuration) -> int:
    return sum(
        abs(a - b) for a, b in zip(_axis_positions(space, configuration), _axis_positions(space, other), strict=True)
    )


def _density(configuration: Configuration, neighbours: Sequence[Configuration], space: Space) -> float:
    """Return the product over the dimensions of kernels around the neighbours' values, with a uniform prior."""
    density = 1.0
    for axis, value in enumerate(_axis_positions(space, configuration)):
        total = 1.0 + sum(math.exp(-abs(value - _axis_positions(space, other)[axis])) for other in neighbours)
        density *= total / (len(neighbours) + 1)
    return density
