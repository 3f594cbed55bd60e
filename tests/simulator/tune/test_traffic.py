from __future__ import annotations

from typing import Any

import pytest

from halcyon_tune.criterion import Criterion
from halcyon_tune.errors import TuneError
from halcyon_tune.points import Configuration
from halcyon_tune.prediction import Predictor
from halcyon_tune.space import Space
from halcyon_tune.traffic import forecast, lines

CONFIGURATIONS = tuple(
    Configuration(instances=count, max_batch=batch) for count in (1, 2) for batch in (1, 4, 8, 16, 32)
)
SPACE = Space(today=CONFIGURATIONS[2], configurations=CONFIGURATIONS, tuned=(), left_out=())
LINE = {"instances": 1, "constantMilliseconds": "20", "perRowMilliseconds": "2", "maxBatchSize": 8}


def status(*learnt_lines: dict[str, Any]) -> dict[str, Any]:
    return {"capacity": {"lines": list(learnt_lines)}}


def test_larger_batch_on_the_learnt_line_is_predicted_to_be_better() -> None:
    predicted = forecast(SPACE, Criterion(predictor=Predictor(0.3)), lines(status(LINE)), name="m")
    assert predicted.best == Configuration(instances=1, max_batch=16)
    assert predicted.extrapolates(predicted.best)
    assert {configuration.instances for configuration in predicted.rates} == {1}
    assert max(configuration.max_batch for configuration in predicted.rates) == 16


def test_level_line_without_a_gain_keeps_todays_settings() -> None:
    line = LINE | {"constantMilliseconds": "0", "perRowMilliseconds": "5"}
    predicted = forecast(SPACE, Criterion(predictor=Predictor(0.3)), lines(status(line)), name="m")
    assert predicted.best == SPACE.today


@pytest.mark.parametrize("missing", [{}, {"capacity": {}}, {"capacity": {"lines": [{"instances": 1}]}}])
def test_unknown_times_are_named(missing: dict[str, Any]) -> None:
    with pytest.raises(TuneError, match="no batch times for 1 instances"):
        forecast(SPACE, Criterion(predictor=Predictor(0.3)), lines(missing), name="m")


def test_lines_that_are_no_times_are_left_out() -> None:
    wrong = [LINE | {"constantMilliseconds": text} for text in ("nan", "-1", "inf", "x")]
    assert lines(status(*wrong)) == {}


def test_objective_below_the_learnt_time_of_a_row_is_refused() -> None:
    with pytest.raises(TuneError, match=r"S\(1\)"):
        forecast(SPACE, Criterion(predictor=Predictor(0.01)), lines(status(LINE)), name="m")
