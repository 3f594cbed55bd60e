"""A load in a process of its own, from its start to its end whatever happens between."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.errors import BenchError

_REPOSITORY = Path(__file__).resolve().parents[1]


@contextmanager
def begun(module: str, told: str, *, what: str) -> Iterator[tuple[subprocess.Popen[str], float]]:
    """(`python -m module told`, the time that it prints first: when its load begins). It is gone when the context is left.

    Raises:
        BenchError: it does not begin; `what` names it.
    """
    # A session of its own: Ctrl-C reaches whoever measures, who then ends the load.
    process = subprocess.Popen(
        [sys.executable, "-m", module, told], stdout=subprocess.PIPE, text=True, cwd=_REPOSITORY, start_new_session=True
    )
    try:
        line = process.stdout.readline() if process.stdout is not None else ""
        if not line:
            raise BenchError(f"the load on {what} does not begin; its error is above")
        yield process, float(line)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()
