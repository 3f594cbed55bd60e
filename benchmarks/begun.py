"""A load generator in its own process, which is always ended with the context."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.errors import BenchError

_REPOSITORY = Path(__file__).resolve().parents[1]


@contextmanager
def load_process(module: str, configuration: str, *, subject: str) -> Iterator[tuple[subprocess.Popen[str], float]]:
    """Start `python -m module configuration`, and yield the process and the time at which the load begins, its first output.

    The process is ended when the context is left.

    Raises:
        BenchError: the load doesn't begin; `subject` is its name in the message.
    """
    # A separate session, so that Ctrl-C reaches only the measuring process, which then ends the load.
    process = subprocess.Popen(
        [sys.executable, "-m", module, configuration],
        stdout=subprocess.PIPE,
        text=True,
        cwd=_REPOSITORY,
        start_new_session=True,
    )
    try:
        line = process.stdout.readline() if process.stdout is not None else ""
        if not line:
            raise BenchError(f"the load on {subject} does not begin; its error is above")
        yield process, float(line)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()
