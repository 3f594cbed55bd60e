"""Start of the child process, and reading of its result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from halcyon_measure.errors import ModelError

TIMEOUT_S = 1800.0


def call(job: Mapping[str, Any], subject: str) -> dict[str, Any]:
    """Run a job in the child process, and return its result.

    Raises:
        ModelError: the process failed; `subject` names the model.
        ModuleNotFoundError: a package of the extra `models` isn't installed.
    """
    # NumPy's BLAS would start threads in addition to those of the job.
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "halcyon_measure.in_process.child"]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    try:
        completed = subprocess.run(  # noqa: S603  # this interpreter, with fixed arguments
            command,
            input=json.dumps(job),
            capture_output=True,
            text=True,
            env=environment,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ModelError(
            f"{subject}: it didn't end within {TIMEOUT_S:.0f} s; try fewer or smaller batch sizes"
        ) from None
    if completed.returncode:
        message = (completed.stderr.strip().splitlines() or ["no message"])[-1]
        if message.startswith("ModuleNotFoundError: No module named "):
            name = message.rsplit("'", 2)[-2]
            raise ModuleNotFoundError(message, name=name)
        if completed.returncode < 0:
            message = f"its process was ended by signal {-completed.returncode}" + (
                ", for its memory" if completed.returncode == -9 else ""
            )
        raise ModelError(f"{subject}: it doesn't run: {message[:500]}")
    result: dict[str, Any] = json.loads(completed.stdout)
    return result
