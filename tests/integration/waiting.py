"""Waiting for a condition, with a deadline and the last value in the failure."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(
    look: Callable[[], T],
    good: Callable[[T], object],
    *,
    what: str,
    limit_s: float = 15.0,
    every_s: float = 0.05,
    context: Callable[[], str] = str,
) -> T:
    """The first value of `look` that is `good`.

    Raises:
        AssertionError: none was within `limit_s`; with the last value, and with `context`.
    """
    deadline = time.monotonic() + limit_s
    while not good(value := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {limit_s:g} s: {what}; last seen: {value!r}\n{context()}")
        time.sleep(every_s)
    return value


def always(
    look: Callable[[], T], good: Callable[[T], object], *, what: str, for_s: float, every_s: float = 0.2
) -> None:
    """Hold the condition for a while: for what must not happen.

    Raises:
        AssertionError: it didn't hold once.
    """
    end = time.monotonic() + for_s
    while time.monotonic() < end:
        value = look()
        assert good(value), f"{what}: {value!r}"
        time.sleep(every_s)
