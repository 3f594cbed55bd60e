"""What a recording from a GPU has taught stays learnt: lines from cold pods, and how busy a GPU was."""

import json
from functools import cache

import pytest

from e2e.bench.gpu.__main__ import RECORDING
from e2e.bench.gpu.findings import Busy, Learnt, busy, laws, learnt

RECORDED = json.loads(RECORDING.read_text())
LAWS = laws(RECORDED)


@cache
def played(model: str, share: float) -> Learnt:
    return learnt(model, LAWS[model], share)


@pytest.mark.parametrize("model", LAWS)
def test_after_ten_seconds_of_load_the_line_is_that_of_warm_pods(model: str) -> None:
    found = played(model, 0.5)
    assert found.at_full[10] == pytest.approx(0, abs=10)
    # Launches are a floor: no line fits there, and the batches of most requests count most.
    assert found.at_mean[10] == pytest.approx(0, abs=10)
    assert found.at_mean[60] == pytest.approx(0, abs=12)


@pytest.mark.parametrize("share", [0.05, 0.5])
@pytest.mark.parametrize("model", LAWS)
def test_pods_that_come_from_their_warm_up_make_a_model_look_no_slower(model: str, share: float) -> None:
    found = played(model, share)
    assert found.scaled == found.at_full[60]
    # What is learnt after it is of batches that ran, and brings no error that was not there.
    assert found.worst_after <= max(abs(found.scaled or 0.0) + 1, 30)


@pytest.mark.parametrize("model", LAWS)
def test_before_batches_ran_a_warm_up_promises_no_more_than_there_is(model: str) -> None:
    assert (played(model, 0.5).at_full[0] or 0.0) > 0


FOUND = {one.load: one for one in busy(RECORDED)}


@pytest.mark.parametrize("found", [one for load, one in FOUND.items() if "graph" in load or load == "idle"], ids=str)
def test_where_a_batch_is_one_launch_what_is_derived_is_what_the_gpu_tells(found: Busy) -> None:
    assert found.derived == pytest.approx(found.nvml, abs=3)
    assert found.derived == pytest.approx(found.graphics, abs=4)


def test_an_instance_that_can_do_no_more_is_seen_though_its_gpu_has_room() -> None:
    found = FOUND["half the host's at 0.6"]
    assert found.nvml < 30
    assert found.derived > 99
