"""Number of examples of a property test, relative to the default: few in `make unit`, many in `make properties`."""

from __future__ import annotations

from hypothesis import settings


def draws(of_the_usual: float, *, steps: int | None = None) -> settings:
    """Return settings for a property with slow examples (factor below 1) or fast and diverse ones (above 1).

    `steps` is the number of steps of a state machine.
    """
    usual = settings()
    examples = max(1, round(usual.max_examples * of_the_usual))
    return settings(
        usual, max_examples=examples, stateful_step_count=usual.stateful_step_count if steps is None else steps
    )
