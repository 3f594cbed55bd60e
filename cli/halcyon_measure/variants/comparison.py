"""Comparison of a variant's outputs with those of the original model and with labels. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from halcyon_measure.errors import ModelError
from halcyon_measure.results.figure import Figure, unmeasured
from halcyon_measure.stats.proportion import share_interval

Arrays = Mapping[str, np.ndarray[Any, Any]]


def label_output(outputs: Arrays, labels: np.ndarray[Any, Any] | None) -> str | None:
    """Return the name of the classification output: the first output with a value for each label.

    The result is None if there is none.
    """
    classes = 2 if labels is None or not len(labels) else int(labels.max()) + 1
    for name, array in outputs.items():
        if array.ndim == 2 and np.issubdtype(array.dtype, np.floating) and array.shape[1] >= max(classes, 2):
            return name
    return None


def accuracy(outputs: Arrays, labels: np.ndarray[Any, Any] | None) -> Figure:
    """Return the accuracy: the share of the rows in which the largest output is that of the label."""
    if labels is None:
        return unmeasured("ratio", "the data has no array labels; --labels names another, --score a function")
    name = label_output(outputs, labels)
    if name is None:
        shapes = ", ".join(f"{output} {list(array.shape)}" for output, array in outputs.items())
        return unmeasured(
            "ratio", f"no output has a value for each label up to {labels.max()}: {shapes}; --score names a function"
        )
    return share(outputs[name].argmax(axis=1) == labels, f"labels found by the largest value of {name}")


def same_label(outputs: Arrays, base: Arrays) -> Figure:
    """Return the share of the rows in which the index of the largest output is the same as in `base`."""
    name = label_output(base, None)
    if name is None:
        return unmeasured("ratio", "no output has one value for each label")
    return share(
        outputs[name].argmax(axis=1) == base[name].argmax(axis=1), f"rows with the same largest value of {name}"
    )


def deviations(outputs: Arrays, base: Arrays) -> tuple[Figure, Figure]:
    """Return the maximum and the mean difference from `base`, relative to each output's largest absolute value."""
    largest, total, count = 0.0, 0.0, 0
    for name, values in base.items():
        if not np.issubdtype(values.dtype, np.floating) or not values.size:
            continue
        scale = float(np.abs(values).max()) or 1.0
        difference = np.abs(outputs[name].astype(np.float64) - values) / scale
        largest = max(largest, float(difference.max()))
        total += float(difference.sum())
        count += values.size
    if not count:
        reason = "the model has no output of floating-point type"
        return unmeasured("ratio", reason), unmeasured("ratio", reason)
    if not math.isfinite(total):
        reason = "an output isn't finite: it is beyond the range of the type"
        return unmeasured("ratio", reason), unmeasured("ratio", reason)
    source = "difference of an output over the largest value of fp32"
    return (
        Figure(value=largest, unit="ratio", n=count, source=source),
        Figure(value=total / count, unit="ratio", n=count, source=source),
    )


def mean_score(values: Any, rows: int, function: str) -> Figure:
    """Return the mean of the scores from the user function, one per row: True or False, or a number from 0 to 1.

    Raises:
        ModelError: the function returned other values or another number of values.
    """
    array = np.asarray(values)
    if array.shape != (rows,) or not (np.issubdtype(array.dtype, np.number) or array.dtype == bool):
        raise ModelError(
            f"{function} returned {array.dtype} {list(array.shape)}; it must return {rows} numbers from 0 to 1, one for a "
            "row"
        )
    array = array.astype(np.float64)
    if not ((array >= 0) & (array <= 1)).all():
        raise ModelError(f"{function} returned {array.min():g} to {array.max():g}; each must be from 0 to 1")
    return share(array, f"mean of {function}")


def share(good: np.ndarray[Any, Any], source: str) -> Figure:
    """Return the mean of values from 0 to 1, with Wilson's confidence interval."""
    count, mean = len(good), float(np.mean(good))
    return Figure(value=mean, unit="ratio", n=count, interval=share_interval(mean, count), source=source)
