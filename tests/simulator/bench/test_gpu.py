"""What recordings from GPUs have taught stays learnt: lines from cold pods, and how busy a GPU was."""

import json
from functools import cache
from typing import NamedTuple

import pytest

from benchmarks.gpu.__main__ import RECORDINGS
from benchmarks.gpu.findings import Busy, Learnt, busy, laws, learnt


class Bounds(NamedTuple):
    """How far the line may be off, percent: at the mean batch after 10 and 60 s, and at most after pods have come."""

    mean_10: float
    mean_60: float
    worst_after: float


BOUNDS = {"h100": Bounds(12, 19, 33), "h200": Bounds(10, 12, 30)}
"""A little more than each recording shows: a floor of launches is a compromise on each GPU, and another one."""
RECORDED = {file.stem: json.loads(file.read_text()) for file in RECORDINGS}
LAWS = {(gpu, model): law for gpu, recording in RECORDED.items() for model, law in laws(recording).items()}


@cache
def played(of: tuple[str, str], share: float) -> Learnt:
    return learnt(of[1], LAWS[of], share)


@pytest.mark.parametrize("of", LAWS, ids=" ".join)
def test_the_line_after_ten_seconds_of_load_is_that_of_warm_pods(of: tuple[str, str]) -> None:
    errors = played(of, 0.5)
    assert errors.at_full[10] == pytest.approx(0, abs=10)
    # Launches are a floor: no line fits there, and the batches of most requests count most.
    assert errors.at_mean[10] == pytest.approx(0, abs=BOUNDS[of[0]].mean_10)
    assert errors.at_mean[60] == pytest.approx(0, abs=BOUNDS[of[0]].mean_60)


@pytest.mark.parametrize("share", [0.05, 0.5])
@pytest.mark.parametrize("of", LAWS, ids=" ".join)
def test_pods_fresh_from_warm_up_make_a_model_look_no_slower(of: tuple[str, str], share: float) -> None:
    errors = played(of, share)
    assert errors.scaled == errors.at_full[60]
    # What is learnt after it is of batches that ran, and brings no error that was not there.
    assert errors.worst_after <= max(abs(errors.scaled or 0.0) + 1, BOUNDS[of[0]].worst_after)


@pytest.mark.parametrize("of", LAWS, ids=" ".join)
def test_a_warm_up_before_any_batch_promises_no_more_than_there_is(of: tuple[str, str]) -> None:
    assert (played(of, 0.5).at_full[0] or 0.0) > 0


SHARES = {(gpu, shares.load): shares for gpu, recording in RECORDED.items() for shares in busy(recording)}


@pytest.mark.parametrize(
    "shares",
    [shares for (_, load), shares in SHARES.items() if "graph" in load or load == "idle"],
    ids=[f"{gpu} {load}" for gpu, load in SHARES if "graph" in load or load == "idle"],
)
def test_the_derived_busy_share_equals_the_gpus_for_one_launch_per_batch(shares: Busy) -> None:
    assert shares.derived == pytest.approx(shares.nvml, abs=3)
    assert shares.derived == pytest.approx(shares.graphics, abs=4)


@pytest.mark.parametrize("gpu", RECORDED)
def test_a_saturated_instance_is_seen_even_if_its_gpu_has_room(gpu: str) -> None:
    shares = SHARES[gpu, "half the host's at 0.6"]
    assert shares.nvml < 30
    assert shares.derived > 99
