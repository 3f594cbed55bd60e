"""Trials of a reliability goal: those that were run so far, and a runner that goes on until the goal's count or the end of its time.

The trials are in docs/quality/data/reliability, in git, so that each call resumes, on any machine. A trial counts while the code differs from
that of the trial in at most 5 % of the operator's modules (`tests.faults.tested_code`). `HALCYON_AGAIN=1` runs trials with a problem again.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from tests.faults.site import Standstills
from tests.faults.tested_code import ROOT, Code, load_codes, present, save_codes

FOLDER = ROOT / "docs" / "quality" / "data" / "reliability"
MINUTES = float(os.environ.get("HALCYON_RELIABILITY_MINUTES", "60"))
"""Time for all goals together. Each has a share of it, after which no trial begins."""


class DiscardedError(Exception):
    """A trial whose scene has failed, such as a replica that lost its lease on a busy machine. It is run again by the next call."""


@dataclass
class Trial:
    """One trial."""

    problems: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    """Measurements by name, with the unit in the name."""
    kind: str = ""
    """Variant of the fault."""
    code: str = ""
    """Digest of the version that was tested."""


@dataclass
class Trials:
    """The trials of one goal."""

    goal: str
    """Id of the goal, such as `R-9`."""
    trials: dict[str, Trial]
    """Trials by number."""
    folder: Path = FOLDER

    def counting(self, codes: Mapping[str, Code], code: Code) -> dict[str, Trial]:
        """Return the trials that count for a version of the code."""
        close = {digest for digest, other in codes.items() if code.is_close_to(other)} | {code.digest}
        return {number: trial for number, trial in self.trials.items() if trial.code in close}

    def save(self) -> None:
        """Write the trials, one line each."""
        lines = [
            f"{json.dumps(number)}: {json.dumps({k: v for k, v in asdict(trial).items() if v}, sort_keys=True)}"
            for number, trial in sorted(self.trials.items(), key=lambda item: int(item[0]))
        ]
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / f"{self.goal}.json"
        # An interruption leaves the file as it was.
        new = file.with_suffix(".new")
        new.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        new.replace(file)


def load(goal: str, folder: Path = FOLDER) -> Trials:
    """Return the trials of a goal so far."""
    try:
        entries = json.loads((folder / f"{goal}.json").read_text())
    except FileNotFoundError:
        entries = {}
    return Trials(goal, {number: Trial(**entry) for number, entry in entries.items()}, folder)


@cache
def tested() -> Code:
    """Return the version of the code in the working tree."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    return present(commit, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))


@dataclass
class _Runner:
    """Lanes that take trials from one list until it is empty, or until a monotonic time."""

    trials: Trials
    code: str
    pending: list[int]
    end: float
    discarded: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def run(self, lanes: Sequence[Callable[[int], Trial]]) -> None:
        """Run all lanes to their end."""
        with Standstills() as standstills:
            threads = [threading.Thread(target=self._work, args=(lane, standstills), daemon=True) for lane in lanes]
            for thread in threads:
                thread.start()
            try:
                for thread in threads:
                    thread.join()
            except BaseException:
                self._stopped.set()
                raise

    def _work(self, lane: Callable[[int], Trial], standstills: Standstills) -> None:
        while not self._stopped.is_set():
            with self._lock:
                if not self.pending or time.monotonic() > self.end:
                    return
                number = self.pending.pop(0)
            began = time.monotonic()
            trial = self._tried(lane, number)
            with self._lock:
                if trial is None or (trial.problems and standstills.since(began)):
                    self.discarded += 1
                elif (
                    not self._stopped.is_set()
                ):  # after an interruption, the API server may have ended during the trial
                    trial.code = self.code
                    self.trials.trials[str(number)] = trial
                    self.trials.save()

    def _tried(self, lane: Callable[[int], Trial], number: int) -> Trial | None:
        try:
            return lane(number)
        except DiscardedError as error:
            print(f"{self.trials.goal} {number} is discarded: {error}", flush=True)  # noqa: T201
            return None
        except Exception as error:  # noqa: BLE001  # a trial that can't be finished is a problem of its goal
            return Trial([f"the trial has ended with {error!r}"[:1500]])


def run(goal: str, count: int, lanes: Sequence[Callable[[int], Trial]], *, share: float) -> dict[str, list[str]]:
    """Run the trials that are missing, each lane one at a time; return the problems of all that count, by number.

    Args:
        goal: id of the goal.
        count: number of trials.
        lanes: functions that run the trial of a number.
        share: share of `MINUTES` for this goal.
    """
    trials, code = load(goal), tested()
    codes = load_codes(FOLDER)
    if code.digest not in codes:
        codes |= {code.digest: code}
        save_codes(FOLDER, codes)
    counting = trials.counting(codes, code)
    again = os.environ.get("HALCYON_AGAIN") == "1"
    numbers = map(str, range(1, count + 1))
    pending = [int(n) for n in numbers if n not in counting or (again and counting[n].problems)]
    runner = _Runner(trials, code.digest, pending, time.monotonic() + 60 * MINUTES * share)
    runner.run(lanes)
    counting = trials.counting(codes, code)
    print(f"{goal}: {len(counting)} of {count} trials; discarded: {runner.discarded}")  # noqa: T201
    return {number: trial.problems for number, trial in counting.items() if trial.problems}
