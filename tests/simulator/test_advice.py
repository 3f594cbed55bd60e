"""Advice on models under simulated load: the right one for a wrong setting, and none for settings that fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.tune.staged_advice import FAULTS, LOADS, Gain, Model, healthy, run

DAY_S = 86_400
QUICK = [fault for fault in FAULTS if fault[2].duration_s < DAY_S]
"""The faults that show within half an hour."""


@pytest.mark.parametrize(("rule", "gain", "model"), QUICK, ids=[model.name for _, _, model in QUICK])
def test_a_wrong_setting_gets_advice_that_brings_its_gain(rule: str, gain: Gain, model: Model) -> None:
    before = run(model)
    advice = {advised.rule: advised for advised in before.advice}
    assert next(iter(advice)) == rule
    assert all(later - first >= 600 for first, later in zip(before.shown_at, before.shown_at[1:], strict=False))
    after = run(model.following(advice[rule]))
    assert gain(model, before, after) >= advice[rule].finding.share / 2


@pytest.mark.parametrize("number", range(8))
def test_settings_that_fit_get_no_advice(number: int) -> None:
    models = healthy()[number * len(LOADS) : (number + 1) * len(LOADS)]
    for model in (models[1], models[3]):
        result = run(replace(model, duration_s=1260.0))
        assert (result.advice, result.shown_at) == ((), ())
        assert result.evidence[-1].busy is not None
