"""Compilation of the simulator's loops by numba, typed for mypy."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numba

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def jit(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Return the function as machine code, compiled at its first call and cached beside the module.

    Danger: no bounds are checked inside, so an index beyond its array writes into foreign memory. Division by zero gives inf, as in NumPy.
    """
    compiled: Callable[Parameters, Result] = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return compiled
