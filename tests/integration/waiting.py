"""Waits for a condition, with a deadline and the last value in the failure message."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

PATIENCE: Final = 4.0
"""Factor for all time limits. The limits only end waits that would never succeed, and a busy machine needs more
time."""


def until(
    look: Callable[[], T],
    good: Callable[[T], object],
    *,
    goal: str,
    limit_s: float = 15.0,
    every_s: float = 0.05,
    context: Callable[[], str] = str,
) -> T:
    """Return the first value of `look` for which `good` is true.

    Args:
        look: reads the value.
        good: returns True for the expected value.
        goal: description for the failure message.
        limit_s: time limit on an idle machine, in seconds.
        every_s: polling interval in seconds.
        context: returns further text for the failure message.

    Raises:
        AssertionError: no value was good within `limit_s` times PATIENCE; the message has the last value, and
        `context`.
    """
    limit_s *= PATIENCE
    deadline = time.monotonic() + limit_s
    while not good(value := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {limit_s:g} s: {goal}; last seen: {value!r}\n{context()}")
        time.sleep(every_s)
    return value


def rested(look: Callable[[], T], *, for_s: float, every_s: float = 0.1) -> T:
    """Return the value of `look` once it has been constant for `for_s` seconds, because others may still write it."""
    seen, since = look(), time.monotonic()
    while time.monotonic() - since < for_s:
        time.sleep(every_s)
        if (now := look()) != seen:
            seen, since = now, time.monotonic()
    return seen


def always(
    look: Callable[[], T], good: Callable[[T], object], *, goal: str, for_s: float, every_s: float = 0.2
) -> None:
    """Check that the condition holds for `for_s` seconds, for events that must not happen.

    Raises:
        AssertionError: the condition was false once.
    """
    end = time.monotonic() + for_s
    while time.monotonic() < end:
        value = look()
        assert good(value), f"{goal}: {value!r}"
        time.sleep(every_s)
