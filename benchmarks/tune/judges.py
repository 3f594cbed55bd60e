"""Searches that know nothing of queues, at the same budget: random, a small TPE and hill climbing over instances and batch.

Each of their evaluations is the capacity of a configuration with the noise of a point. In points, one costs what the
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
    return max(values, key=lambda one: values[one])


def tpe(space: Space, measure: Measure, evaluations: int, seed: int) -> Configuration:
    """Return the best found by a tree-structured Parzen estimator with independent dimensions."""
    random = np.random.default_rng(seed)
    values: dict[Configuration, float] = {}
    for index in random.permutation(len(space.configurations))[: min(_RANDOM_STARTS, evaluations)]:
        values[space.configurations[index]] = measure(space.configurations[index])
    while len(values) < evaluations:
        ranked = sorted(values, key=lambda one: -values[one])
        count = max(math.ceil(_GOOD * len(ranked)), 1)
        left = [one for one in space.configurations if one not in values]
        if not left:
            break
        drawn = [left[index] for index in random.permutation(len(left))[:_DRAWS]]
        chosen = max(drawn, key=lambda one: _density(one, ranked[:count], space) / _density(one, ranked[count:], space))
        values[chosen] = measure(chosen)
    return max(values, key=lambda one: values[one])


def hill_climbing(space: Space, measure: Measure, evaluations: int, seed: int) -> Configuration:
    """Return the best found by steps in one field from today's configuration, or from a random one once there is none."""
    random = np.random.default_rng(seed)
    values = {space.today: measure(space.today)}
    at = space.today
    while len(values) < evaluations:
        near = [one for one in space.configurations if one not in values and _steps(space, one, at) == 1]
        if not near:
            left = [one for one in space.configurations if one not in values]
            if not left:
                break
            near = left
        chosen = near[int(random.integers(len(near)))]
        values[chosen] = measure(chosen)
        if values[chosen] > values[at]:
            at = chosen
    return max(values, key=lambda one: values[one])


JUDGES: dict[str, Judge] = {"random": random_search, "TPE": tpe, "hill climbing": hill_climbing}


def _axes(space: Space) -> tuple[Sequence[float], Sequence[float], Sequence[float]]:
    known = space.configurations
    return (
        sorted({float(one.instances) for one in known}),
        sorted({float(one.max_batch) for one in known}),
        sorted({one.delay_s for one in known}),
    )


def _place(space: Space, one: Configuration) -> tuple[int, int, int]:
    counts, batches, delays = _axes(space)
    return counts.index(one.instances), batches.index(one.max_batch), delays.index(one.delay_s)


def _steps(space: Space, one: Configuration, other: Configuration) -> int:
    return sum(abs(a - b) for a, b in zip(_place(space, one), _place(space, other), strict=True))


def _density(one: Configuration, known: Sequence[Configuration], space: Space) -> float:
    """Return the product over the dimensions of kernels around the known values, with a uniform prior."""
    density = 1.0
    for axis, value in enumerate(_place(space, one)):
        total = 1.0 + sum(math.exp(-abs(value - _place(space, other)[axis])) for other in known)
        density *= total / (len(known) + 1)
    return density
