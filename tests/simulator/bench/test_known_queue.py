"""A queue whose latencies are known: Lindley's recursion over the times for which the server was busy with each request."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.measure.models import Executions, Floats, latencies, lindley

SWITCH_S, AROUND_S = 0.0003, 0.0012
SERVER_ZERO_S = 500.0
"""What the server's clock shows at the beginning of the run."""


class Stage:
    """A server that takes `SWITCH_S` between two executions, or longer where it was held up, and its client."""

    def __init__(self, count: int, *, held_up_s: float = 0.0) -> None:
        draws = np.random.default_rng(3)
        self.due = np.cumsum(draws.exponential(0.016, count))
        self.requested = np.resize(draws.gamma(4, 0.0025, 64), count)
        self.sent = self.due.copy()
        self.switch = np.full(count, SWITCH_S)
        self.switch[count // 2 :: 50] += held_up_s

    def run(self) -> tuple[Executions, Floats]:
        """Return the executions, and the latencies that the client sees."""
        began = self.sent + lindley(self.sent, self.requested + self.switch)
        ended = began + self.requested
        executions = Executions(self.requested, began + SERVER_ZERO_S, ended + SERVER_ZERO_S)
        return executions, ended - self.due + AROUND_S

    def true(self, executions: Executions) -> Floats:
        return latencies(self.due, self.sent, self.requested, executions, around_s=AROUND_S)


def test_lindley_waits_for_the_requests_before() -> None:
    waits = lindley(np.array([0.0, 1.0, 1.5, 9.0]), np.array([2.0, 1.0, 1.0, 1.0]))
    assert waits.tolist() == [0.0, 1.0, 1.5, 0.0]


def test_latencies_of_a_punctual_client_are_the_true_ones() -> None:
    stage = Stage(2000)
    executions, seen = stage.run()
    assert np.abs(stage.true(executions) - seen).max() < SWITCH_S


def test_latencies_contain_what_holds_a_server_up_between_executions() -> None:
    stage = Stage(2000, held_up_s=0.03)
    executions, seen = stage.run()
    true = stage.true(executions)
    for share in (0.5, 0.99):
        assert np.quantile(true, share) == pytest.approx(np.quantile(seen, share), rel=0.01)


def test_latencies_of_late_requests_exceed_the_true_ones() -> None:
    stage = Stage(2000)
    stage.sent[700:720] = stage.due[719] + 0.05
    executions, seen = stage.run()
    true = stage.true(executions)
    assert (seen - true)[700:720].min() > 0.03
    assert np.abs(seen - true)[:700].max() < SWITCH_S


def test_executions_of_requests_that_overtook_each_other_are_theirs() -> None:
    requested = np.array([0.01, 0.02, 0.03, 0.01])
    order = [1, 0, 3, 2]
    executions = Executions(requested[order], np.arange(4.0), np.arange(4.0) + 0.5)
    numbers = executions.numbers_of(requested)
    assert executions.requested[numbers].tolist() == requested.tolist()
    assert sorted(numbers) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match=r"request 0 of 0.04 s"):
        executions.numbers_of(np.array([0.04]))


def test_record_of_executions_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "timed").mkdir()
    np.array([[0.01, 5.0, 5.01], [0.02, 6.0, 6.02]]).tofile(tmp_path / "timed" / "executions")
    assert len(Executions.read(tmp_path)) == 2
    later = Executions.read(tmp_path, first=1)
    assert (later.requested[0], later.began[0], later.ended[0]) == (0.02, 6.0, 6.02)
