"""The programs perf_analyzer and PyTriton's ModelClient.

`requirements.lock` in this folder pins them, and scripts/clients-site installs them. perf_analyzer is built for Debian
13 and newer, so it uses the C library of the file tree with the tests' HAProxy.
"""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from tests.unit.balancer import real_haproxy

_REPOSITORY = Path(__file__).resolve().parents[2]
_LIMIT_S = 180
_MODEL_CLIENT = """
import json, sys
import numpy as np
from pytriton.client import ModelClient

url, model, name, rows, width = sys.argv[1:]
with ModelClient(url, model, lazy_init=False, init_timeout_s=30, inference_timeout_s=30) as client:
    answer = client.infer_batch(**{name: np.zeros((int(rows), int(width)), np.float32)})
    shapes = {output: list(array.shape) for output, array in answer.items()}
    print(json.dumps({"model": client.model_config.model_name, "shapes": shapes}))
"""


class ClientError(Exception):
    """A client that could not be installed, or failed. The message has the end of its output."""


@cache
def _site() -> Path:
    return Path(_run([str(_REPOSITORY / "scripts" / "clients-site")]).strip())


def perf_analyzer(*arguments: str) -> str:
    """Run perf_analyzer, and return its report.

    Raises:
        ClientError: it failed.
    """
    tree = real_haproxy.root()
    [loader] = (tree / "usr/lib").glob("*/ld-linux-*.so.*")
    program = _site() / "perf_analyzer" / "bin" / "perf_analyzer"
    return _run([str(loader), "--library-path", str(loader.parent), str(program), *arguments])


def model_client(url: str, model: str, *, name: str, rows: int, width: int) -> dict[str, Any]:
    """Return the model's name in its configuration and the shapes of its outputs for rows of zeros, from ModelClient.

    Raises:
        ClientError: it failed.
    """
    command = [sys.executable, "-W", "ignore", "-c", _MODEL_CLIENT, url, model, name, str(rows), str(width)]
    found: dict[str, Any] = json.loads(_run(command, PYTHONPATH=str(_site())))
    return found


def _run(command: list[str], **environment: str) -> str:
    try:
        done = subprocess.run(
            command,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_LIMIT_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise ClientError(f"{command[0]} did not end within {_LIMIT_S} s") from error
    if done.returncode:
        said = f"{done.stdout[-1000:]}\n{done.stderr[-1000:]}".strip()
        raise ClientError(f"{' '.join(command)[:200]} ended with status {done.returncode}: {said}")
    return done.stdout
