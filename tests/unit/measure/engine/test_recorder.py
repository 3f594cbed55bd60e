"""Requests of a process: kept up to a limit, counted above it."""

from __future__ import annotations

from pathlib import Path

from halcyon_measure.engine import pool
from halcyon_measure.engine.recorder import CHUNK, Recorder
from halcyon_measure.protocols.reply import Outcome, Reply
from halcyon_measure.results.columns import Columns
from halcyon_measure.results.folded import Folded


def recorded(count: int, *, fold_above: float, pod: str = "a", message: str = "") -> Recorder:
    """Return the recorder of one request each 10 ms, the last of which fails if there is a message."""
    recorder = Recorder(measured_from=100.0, good_within_s=0.025, fold_above=fold_above)
    for number in range(count):
        due = 100.0 + 0.01 * number
        failed = message and number == count - 1
        outcome = Outcome.ERROR if failed else Outcome.ANSWERED
        reply = Reply(outcome, message if failed else "", due + 0.009, b"", "" if failed else pod)
        done = due + 0.01 + (number % 3) * 0.01
        recorder.add(
            reply, due=due, prepared=due, sent=due, done=done, finished=done, encode=0, decode=0, rows=1, sent_bytes=1
        )
    return recorder


def test_requests_up_to_the_limit_are_kept() -> None:
    columns = recorded(3 * CHUNK, fold_above=3 * CHUNK).result()
    assert isinstance(columns, Columns)
    assert len(columns) == 3 * CHUNK
    assert columns.due.tolist() == sorted(columns.due.tolist())


def test_requests_above_the_limit_are_counted_all_of_them() -> None:
    count = 5 * CHUNK + 17
    folded = recorded(count, fold_above=2 * CHUNK).result()
    assert isinstance(folded, Folded)
    assert len(folded) == count
    assert folded.good_by_second.sum() == sum(number % 3 < 2 for number in range(count))
    assert len(folded.due_by_second) == count // 100 + 1


def test_requests_of_all_processes_are_counted_if_those_of_one_are(tmp_path: Path) -> None:
    paths = []
    for number, (count, pod) in enumerate(((4 * CHUNK, "a"), (CHUNK, "b"))):
        recorder = recorded(count, fold_above=2 * CHUNK, pod=pod, message=f"message {number}")
        paths.append(tmp_path / f"{number}.npz")
        recorder.result().save(paths[-1], messages=recorder.messages, pods=recorder.pods)
    columns, folded, messages, pods = pool._merged(paths, 0.02)
    assert len(columns) == 0
    assert folded is not None
    assert len(folded) == 5 * CHUNK
    assert (messages, pods) == (["message 0", "message 1"], ["a", "b"])
    assert dict(folded.pods) == {0: 4 * CHUNK - 1, 1: CHUNK - 1}
    assert {key: entry[0] for key, entry in folded.failures.items()} == {(Outcome.ERROR, 0): 1, (Outcome.ERROR, 1): 1}


def test_requests_of_two_processes_below_the_limit_are_kept(tmp_path: Path) -> None:
    paths = []
    for number in range(2):
        recorder = recorded(CHUNK, fold_above=2 * CHUNK)
        paths.append(tmp_path / f"{number}.npz")
        recorder.result().save(paths[-1], messages=recorder.messages, pods=recorder.pods)
    columns, folded, _, pods = pool._merged(paths, None)
    assert (len(columns), folded, pods) == (2 * CHUNK, None, ["a"])
