"""Run a folder of tests in as many processes as there are cores, each with files of its own: `python -m tests.parts tests/unit -q`.

pytest-xdist has each worker collect everything, and a process beside them that is told of each test. Where thousands of tests take half
a minute on two cores, that is a sixth of it. Files go by weight, the heaviest first, to whoever has least: their size, and so much more for each test with
drawn examples. On two cores the halves then differ by a hundredth of what they take (by a quarter where size alone counted). The first part's output is shown as it comes, that of the others when they have ended.
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

from tests import figures

_DRAWN = 10_000
"""What a test with drawn examples weighs, in bytes of other tests."""


_SAID = re.compile(rb"^WEIGHT_BYTES = ([0-9_]+)", re.MULTILINE)
"""What a file says of itself, if its size is no measure: its cases are made in a loop."""


def weight(file: Path) -> int:
    """Return about what a file's tests take, in bytes of tests; 60,000 are a second."""
    text = file.read_bytes()
    said = _SAID.search(text)
    return int(said[1]) if said else len(text) + _DRAWN * text.count(b"@given(")


def divided(files: Sequence[Path], parts: int) -> list[list[Path]]:
    """So many lists of about the same weight; fewer where there are fewer files."""
    lists: list[list[Path]] = [[] for _ in range(min(parts, len(files)))]
    weights = [0] * len(lists)
    for heavy, file in sorted(((weight(file), file) for file in files), key=lambda w: (-w[0], w[1])):
        least = weights.index(min(weights))
        lists[least].append(file)
        weights[least] += heavy
    return lists


def run(folder: Path, options: Sequence[str]) -> int:
    """0 where every part passed, else 1: also where one was ended by a signal, whose status is a negative number."""
    parts = divided(list(folder.rglob("test_*.py")), os.cpu_count() or 1)
    # Each would write the cache of what failed last as if there were nobody else.
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    # Bytecode is kept, or each run would rewrite and compile every test module again: a tenth of its time.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with ExitStack() as stack:
        # In files: a part that has much to say would wait at a full pipe until its turn comes.
        later = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in parts[1:]]
        running = [
            subprocess.Popen([*command, *map(str, sorted(part))], stdout=out, env=environment)
            for part, out in zip(parts, [None, *later], strict=True)
        ]
        try:
            ended = [process.wait() for process in running]
        finally:
            for process in running:
                process.kill()  # none is left but where we were interrupted
        for out in later:
            out.seek(0)
            sys.stdout.write(out.read())
    return int(any(ended))


def main(arguments: Sequence[str]) -> int:
    """How long the unit tests take, from here to the end of the last part, is a figure of the project; a run that failed is none."""
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
