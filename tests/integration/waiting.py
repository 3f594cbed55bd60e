"""Waiting for a condition, with a deadline and the last value in the failure."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

PATIENCE: Final = 4.0
"""All limits times this: they end what never comes, and what does come takes longer on a machine that has other work."""


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

    Args:
        look: asks.
        good: tells.
        what: is waited for.
        limit_s: on a quiet machine.
        every_s: between two looks.
        context: more for the failure.

    Raises:
        AssertionError: none was within `limit_s` times PATIENCE; with the last value, and with `context`.
    """
    limit_s *= PATIENCE
    deadline = time.monotonic() + limit_s
    while not good(value := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {limit_s:g} s: {what}; last seen: {value!r}\n{context()}")
        time.sleep(every_s)
    return value


def rested(look: Callable[[], T], *, for_s: float, every_s: float = 0.1) -> T:
    """The value, once it has been the same for so long: others write too, and they end."""
    seen, since = look(), time.monotonic()
    while time.monotonic() - since < for_s:
        time.sleep(every_s)
        if (now := look()) != seen:
            seen, since = now, time.monotonic()
    return seen


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
