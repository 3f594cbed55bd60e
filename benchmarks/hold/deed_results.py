"""Results of the adversaries' deeds, one line each, so that a campaign resumes, on another machine too.

docs/quality/data/adversary has a file for each adversary, in git. A result names the version of the code that it was measured on: a digest
of the modules that the attacked processes import, without comments and docstrings (`tests.faults.tested_code`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.quality import rows
from benchmarks.quality.rows import DATA, Row, commit, today
from tests.faults.tested_code import SOURCE, modules_of

FOLDER = DATA / "adversary"


@dataclass(frozen=True)
class DeedResult:
    """Effect of one deed on other clients or tenants."""

    seconds: float
    """Time of the deed; the deed at the plain server took as long."""
    code: str
    """Digest of the version under test."""
    commit: str
    date: str
    figures: Mapping[str, Any]


def measured(seconds: float, code: str, figures: Mapping[str, Any]) -> DeedResult:
    """Return the result of a deed that was measured now."""
    return DeedResult(seconds, code, commit(), today(), figures)


def code_of(entry: str, texts: Iterable[str] = ()) -> str:
    """Return the digest of the modules that a module needs, and of other texts under test."""
    modules = sorted(modules_of(SOURCE, entry).items())
    return hashlib.sha256(json.dumps([modules, *texts]).encode()).hexdigest()[:10]


def load(name: str, folder: Path = FOLDER) -> dict[str, DeedResult]:
    """Return the results of an adversary by the deed's name, empty if there are none."""
    try:
        documents = json.loads((folder / f"{name}.json").read_text())
    except FileNotFoundError:
        return {}
    return {deed: DeedResult(**result) for deed, result in documents.items()}


def save(name: str, results: Mapping[str, DeedResult], folder: Path = FOLDER) -> None:
    """Write the results, one line each."""
    lines = [f"{json.dumps(deed)}: {json.dumps(asdict(result))}" for deed, result in sorted(results.items())]
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f".{name}.json"
    new.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    new.replace(folder / f"{name}.json")


def remaining(
    deeds: Sequence[str], results: Mapping[str, DeedResult], *, code: str, seconds: float, again: bool = False
) -> list[str]:
    """Return the deeds to measure, in order: those without a result, those of other code, and those that were shorter.

    With `again`, the others follow, the oldest first.
    """
    done = {name for name, result in results.items() if result.code == code and result.seconds >= seconds}
    missing = [name for name in deeds if name not in done]
    missing.sort(key=lambda name: name in results)
    others = sorted((name for name in deeds if name in done), key=lambda name: results[name].date)
    return missing + (others if again else [])


def run(
    argv: Sequence[str],
    *,
    name: str,
    prog: str,
    deeds: Sequence[str],
    seconds: float,
    code: str,
    measure: Callable[[Sequence[str], float, float], None],
    row: Callable[[Mapping[str, DeedResult]], Row],
) -> int:
    """Measure the deeds that the command line selects, record the row of all results so far, and return the exit status.

    Args:
        argv: arguments of the command line.
        name: name of the adversary's results.
        prog: name of the command.
        deeds: names of all deeds.
        seconds: default time of a deed.
        code: digest of the version under test.
        measure: measures these deeds for some seconds each, until a time of the monotonic clock, and saves the results.
        row: makes the row of these results.
    """
    parser = argparse.ArgumentParser(prog=prog, description=f"Deeds of the adversary `{name}`.")
    parser.add_argument("deeds", nargs="*", metavar="DEED", help=", ".join(deeds))
    parser.add_argument("--seconds", type=float, default=seconds, help="time of each deed (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=120.0, help="time after which no deed begins (default: 120)")
    parser.add_argument("--again", action="store_true", help="also measure deeds that have a result")
    parser.add_argument("--report", action="store_true", help="record the row of the results so far")
    options = parser.parse_args(argv)
    if unknown := set(options.deeds) - set(deeds):
        parser.error(f"{', '.join(sorted(unknown))}: not one of {', '.join(deeds)}")
    until_s = time.monotonic() + 60 * options.minutes
    chosen = remaining(options.deeds or deeds, load(name), code=code, seconds=options.seconds, again=options.again)
    if chosen and not options.report:
        measure(chosen, options.seconds, until_s)
    results = {deed: result for deed, result in load(name).items() if deed in deeds}
    if results:
        recorded = row(results)
        rows.record("hold", [recorded])
        print(json.dumps(recorded.value), "holds" if rows.holds(recorded) else "falls short")
    return 0
