"""Compilation of the simulator's loops by numba, typed for mypy; nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numba

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def jit(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The function as machine code, compiled at its first call and kept in a cache beside the module.

    No bounds are checked inside: an index beyond its array writes into foreign memory. Division by zero gives inf, as numpy's.
    """
    compiled: Callable[Parameters, Result] = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return compiled
