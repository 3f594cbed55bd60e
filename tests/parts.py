"""Runs a folder of tests in one process per core, each with its own files: `python -m tests.parts tests/unit -q`.

With pytest-xdist, each worker collects all tests, and a controlling process receives a report for each test. For
thousands of tests that take half a minute on two cores, this costs a sixth of the time. Here, files are assigned by
weight, the heaviest first, to the process with the least weight. A file's weight is its size plus a constant for each
test with drawn examples. On two cores the durations differ by 1 % (by 25 % if only the size counts). The output of the
first process is shown immediately, that of the others after they have ended.

The tests run with plain assertions: pytest's rewriting of each test module would be a sixth of the first run on a fresh
clone, as in CI. Tests that fail run again with rewritten assertions, which show the values.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import figures

_DRAWN = 5_000
"""Weight of a test with drawn examples, in bytes."""


_DECLARED = re.compile(rb"^WEIGHT_BYTES = ([0-9_]+)", re.MULTILINE)
"""Weight that a file declares itself, if its size is no measure because its cases are generated in a loop."""


def weight(file: Path) -> int:
    """Return the estimated weight of a file in bytes; 60,000 bytes take about a second."""
    text = file.read_bytes()
    declared = _DECLARED.search(text)
    return int(declared[1]) if declared else len(text) + _DRAWN * text.count(b"@given(")


def divided(files: Sequence[Path], parts: int) -> list[list[Path]]:
    """Divide the files into `parts` lists of about the same weight; fewer if there are fewer files."""
    lists: list[list[Path]] = [[] for _ in range(min(parts, len(files)))]
    weights = [0] * len(lists)
    for heavy, file in sorted(((weight(file), file) for file in files), key=lambda w: (-w[0], w[1])):
        least = weights.index(min(weights))
        lists[least].append(file)
        weights[least] += heavy
    return lists


def run(folder: Path, options: Sequence[str]) -> int:
    """Run the tests, and return 0 if every part passed, else 1.

    A part that was ended by a signal, with a negative status, counts as failed.
    """
    parts = divided(list(folder.rglob("test_*.py")), os.cpu_count() or 1)
    # Plugins without a use here: they divide tests among processes themselves, and measure the coverage.
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:xdist",
        "-p",
        "no:xdist.looponfail",
        "-p",
        "no:pytest_cov",
        *options,
    ]
    # Bytecode is kept, or each run would compile every test module again: a tenth of its time.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    # Each part has one core. Threads of linear algebra would spin while they wait for each other: two thirds of some tests' time.
    environment["OPENBLAS_NUM_THREADS"] = "1"
    with ExitStack() as stack:
        # Each part has its own cache of failed tests, so that no part overwrites another's.
        caches = [stack.enter_context(tempfile.TemporaryDirectory()) for _ in parts]
        commands = [
            [*command, "-o", f"cache_dir={cache}", *map(str, sorted(part))]
            for part, cache in zip(parts, caches, strict=True)
        ]
        # Output goes to files, because a part with much output would block on a full pipe.
        later = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in parts[1:]]
        running = [
            subprocess.Popen([*part_command, "--assert=plain"], stdout=out, env=environment)
            for part_command, out in zip(commands, [None, *later], strict=True)
        ]
        try:
            ended = [process.wait() for process in running]
        finally:
            for process in running:
                process.kill()  # a process is left only after an interruption
        for out in later:
            out.seek(0)
            sys.stdout.write(out.read())
        sys.stdout.flush()
        # What a second run finds changes nothing: a test that failed once has failed.
        for part_command, status in zip(commands, ended, strict=True):
            if status == pytest.ExitCode.TESTS_FAILED:
                sys.stdout.write("\nThe failed tests again, with the values of their assertions:\n")
                sys.stdout.flush()
                subprocess.run(
                    [*part_command, "--last-failed", "--last-failed-no-failures=none"], env=environment, check=False
                )
    return int(any(ended))


def main(arguments: Sequence[str]) -> int:
    """Run the tests, and record the total duration if they are the unit tests and all pass."""
    began = time.monotonic()
    folder, *options = arguments
    status = run(Path(folder), options)
    took = round(time.monotonic() - began, 1)
    sys.stdout.write(f"{folder}: {took} s in all\n")
    if status == 0 and folder == "tests/unit":
        figures.record("unit_tests_s", took)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
