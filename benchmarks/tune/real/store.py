"""Recorded results of a law, which several processes extend at the same time.

They are in git, in docs/quality/data/tune, so that a run on another machine goes on where this one has ended. Claims and locks
are in the build folder.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.quality.rows import DATA, OUT, replace
from benchmarks.tune.real.laws import LAWS, TritonLaw

State = dict[str, Any]

FOLDER, LOCKS = DATA / "tune", OUT / "tune"


class Store:
    """Recorded results of one law. Results of a law with other times don't count."""

    def __init__(self, law: TritonLaw, folder: Path = FOLDER, locks: Path = LOCKS) -> None:
        """Store the paths."""
        self._law, self._file, self._locks = law, folder / f"{law.kind}.json", locks

    def read(self) -> State:
        """Return all results."""
        document = json.loads(json.dumps(self._law.document()))
        try:
            state: State = json.loads(self._file.read_text())
        except FileNotFoundError:
            return {"law": document}
        return state if state.get("law") == document else {"law": document}

    def write(self, section: str, key: str, value: Any) -> None:
        """Write one result. The results that other processes have written since stay."""
        with self._lock("file", waits=True):
            state = self.read()
            state.setdefault(section, {})[key] = value
            self._file.parent.mkdir(parents=True, exist_ok=True)
            replace(self._file, text(state))

    @contextmanager
    def claim(self, job: str) -> Iterator[bool]:
        """Yield whether no other process has this job. The claim ends with the context, or with the process."""
        with self._lock(job.replace(" ", "-").replace(",", ""), waits=False) as is_ours:
            yield is_ours

    @contextmanager
    def _lock(self, name: str, *, waits: bool) -> Iterator[bool]:
        self._locks.mkdir(parents=True, exist_ok=True)
        with (self._locks / f"{self._law.kind}-{name}.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
            else:
                yield True


def states() -> dict[str, State]:
    """Return the recorded results, by the kind of the law."""
    return {law.kind: Store(law).read() for law in LAWS}


def text(state: State) -> str:
    """Return the JSON text of results with one line for each, so that a change of one is a short difference."""
    sections = []
    for section, entries in state.items():
        if section == "law":
            sections.append(f'"law": {json.dumps(entries)}')
            continue
        lines = [f"  {json.dumps(key)}: {json.dumps(entries[key])}" for key in sorted(entries)]
        sections.append(f"{json.dumps(section)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n " + ",\n ".join(sections) + "\n}\n"
