"""Repository indexes of pods with several models, as Triton 2.51 returns them."""

from __future__ import annotations

import pytest

from halcyon.triton.errors import MAX_ERROR_CHARS
from halcyon.triton.repository_index import RepositoryIndex, parse

MAIN = {"name": "main", "version": "1", "state": "READY"}
PRE = {"name": "pre", "version": "1", "state": "UNAVAILABLE", "reason": "Internal: ImportError: no module named torch"}
FAILURE = "model pre of the repository: Internal: ImportError: no module named torch"
REFUSAL = (
    "Triton's index lists the model without a state: Triton rejected its configuration; "
    "see the log of container triton in pod p"
)


def test_an_ensemble_s_load_error_is_that_of_its_step() -> None:
    assert parse([{"name": "ens"}, MAIN, PRE], "ens", pod="p") == RepositoryIndex((), FAILURE, companions=("main",))


def test_a_model_s_load_error_names_the_model_that_it_calls() -> None:
    ready = {**MAIN, "name": "bls"}

    assert parse([ready, MAIN, PRE], "bls", pod="p") == RepositoryIndex(("1",), FAILURE, companions=("main",))


def test_a_companion_with_a_rejected_configuration_is_named() -> None:
    load_error = parse([{"name": "ens"}, MAIN, {"name": "pre"}], "ens", pod="p").load_error

    assert load_error == f"model pre of the repository: {REFUSAL}"
    assert parse([{"name": "ens"}, MAIN], "ens", pod="p").load_error == REFUSAL


def test_an_exit_of_a_step_s_stub_is_no_model() -> None:
    index = parse([MAIN, {"name": "halcyon.stub.exit-1"}, {**MAIN, "name": "ens"}], "ens", pod="p")

    assert index == RepositoryIndex(("1",), None, "a Python stub process exited with code 1", ("main",))


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        ("exit-139", "a Python stub process exited with code 139"),
        ("signal-11", "a Python stub process was ended by signal 11"),
        (
            "signal-9.oom",
            "a Python stub process was ended by signal 9; a process of the container was killed for lack of memory (OOM)",
        ),
    ],
)
def test_the_end_of_a_stub_is_described_in_words(ended: str, reason: str) -> None:
    assert parse([{"name": f"halcyon.stub.{ended}"}], "main", pod="p").stub_exit == reason


def test_a_load_error_names_the_end_of_a_stub() -> None:
    """As a real pod had it whose model needed more memory than its limit: the container itself isn't killed then."""
    failure = "Internal: Stub process 'main_0' is not healthy."
    stub = {"name": "halcyon.stub.signal-9.oom"}
    error = parse([stub, {**MAIN, "state": "UNAVAILABLE", "reason": failure}], "main", pod="p").load_error
    other = parse([stub, PRE], "pre", pod="p").load_error
    long = parse([stub, {**PRE, "reason": failure + MAX_ERROR_CHARS * "x"}], "pre", pod="p").load_error

    ended = (
        "a Python stub process was ended by signal 9; a process of the container was killed for lack of memory (OOM)"
    )
    assert error == f"{failure} ({ended})"
    assert other == PRE["reason"]
    assert long is not None
    assert long.endswith(f"x ({ended})")
    assert len(long) == MAX_ERROR_CHARS
