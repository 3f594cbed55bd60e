"""Repository indexes of pods with several models, as Triton 2.51 returns them."""

from __future__ import annotations

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
    found = parse([{"name": "ens"}, MAIN, {"name": "pre"}], "ens", pod="p").load_error

    assert found == f"model pre of the repository: {REFUSAL}"
    assert parse([{"name": "ens"}, MAIN], "ens", pod="p").load_error == REFUSAL


def test_an_exit_of_a_step_s_stub_is_no_model() -> None:
    found = parse([MAIN, {"name": "halcyon.stub.exit-1"}, {**MAIN, "name": "ens"}], "ens", pod="p")

    assert found == RepositoryIndex(("1",), None, "exit-1", ("main",))
