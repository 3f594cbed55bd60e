"""How many examples a property draws, as a share of what the run draws for each (tests/conftest.py): `make unit` few, `make properties` many."""

from __future__ import annotations

from hypothesis import settings


def draws(of_the_usual: float, *, steps: int | None = None) -> settings:
    """Settings for a property whose examples take long (below 1) or are cheap and many-sided (above); `steps` is a state machine's."""
    usual = settings()
    examples = max(1, round(usual.max_examples * of_the_usual))
    return settings(
        usual, max_examples=examples, stateful_step_count=usual.stateful_step_count if steps is None else steps
    )
