"""A measured capacity in the closed loop: what it brings a slow model, and how soon a wrong one is forgotten."""

from __future__ import annotations

from statistics import median

import pytest

from benchmarks.tune.teach import LAWS, SEEDS, WITHIN_S, decisions_off, right, run

SLOW = ("unbatched 5 s", "decoupled 16 s, 32 at once")


@pytest.mark.parametrize("law", SLOW)
def test_a_measured_slow_model_gets_its_replicas_earlier(law: str) -> None:
    taught, today = (run(LAWS[law], factor).right_after_s(right(LAWS[law])) for factor in (1.0, None))
    assert taught is not None
    assert today is not None
    assert taught < 0.6 * today


@pytest.mark.parametrize("law", SLOW)
def test_measured_slow_model_has_enough_replicas_within_seconds(law: str) -> None:
    need = right(LAWS[law])
    assert median(run(LAWS[law], 1.0, seed=seed).right_after_s(need) or 1000.0 for seed in SEEDS) <= WITHIN_S


@pytest.mark.parametrize("factor", [0.3, 3.0])
@pytest.mark.parametrize("law", LAWS)
def test_wrong_times_change_no_replicas_after_100_batches(law: str, factor: float) -> None:
    reference = {round(at): count for at, count, *_ in run(LAWS[law], 1.0).counts}
    assert len(decisions_off(run(LAWS[law], factor), reference, right(LAWS[law]))) <= 1


def test_an_optimistic_measurement_is_no_evidence_of_a_shared_limit() -> None:
    """Three pods answer what one was promised to."""
    counts = [count for at, count, *_ in run(LAWS["unbatched 5 s"], 0.3).counts if at > 200]
    assert min(counts) >= 4
