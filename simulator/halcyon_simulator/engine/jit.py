"""Compilation of the simulator's loops by numba, with types for mypy."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numba

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def jit(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Return a compiled version of the function. It is compiled on the first call, and cached next to the module.

    Danger: compiled code checks no array bounds, so an index out of range overwrites other memory. Division by zero
    gives inf, as in NumPy.
    """
    compiled: Callable[Parameters, Result] = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return compiled
