"""MLflow's own server with its registry, its artifacts and its authentication, for tests."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from e2e.s3 import answers

_ROOT = Path(__file__).resolve().parents[2]
_USER, PASSWORD = "models", "halcyon-mlflow-canary-password"
AUTHORIZATION = "Basic " + base64.b64encode(f"{_USER}:{PASSWORD}".encode()).decode()
"""Value of the header `Authorization` of a user who may read everything."""
_LIMIT_S = 60
_MAX_START_S = 300
"""MLflow imports pandas and creates its tables at its first start, which takes 20 s of a core."""
_API = "/api/2.0/mlflow"


@dataclass(frozen=True)
class MlflowServer:
    """A running server."""

    url: str

    def register(self, model: str, files: Mapping[str, bytes]) -> str:
        """Log the files in a new run and register them as the model's next version; return its URI."""
        run = self._post("/runs/create", {"experiment_id": "0"})["run"]["info"]
        uri = str(run["artifact_uri"])
        for name, content in files.items():
            path = uri.partition(":/")[2].lstrip("/")
            self._send("PUT", f"/api/2.0/mlflow-artifacts/artifacts/{quote(f'{path}/model/{name}')}", content)
        return self.register_at(model, f"{uri}/model", run["run_id"])

    def register_at(self, model: str, source: str, run: str = "") -> str:
        """Register a place as the model's next version; return its URI."""
        try:
            self._post("/registered-models/create", {"name": model})
        except urllib.error.HTTPError as error:
            if b"RESOURCE_ALREADY_EXISTS" not in error.read():
                raise
        version = self._post("/model-versions/create", {"name": model, "source": source, "run_id": run})
        return f"mlflow://{model}/{version['model_version']['version']}"

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        response: dict[str, Any] = json.loads(self._send("POST", _API + path, json.dumps(body).encode()))
        return response

    def _send(self, method: str, path: str, content: bytes) -> bytes:
        kind = "application/json" if method == "POST" else "application/octet-stream"
        headers = {"Authorization": AUTHORIZATION, "Content-Type": kind}
        request = urllib.request.Request(self.url + path, content, headers, method=method)
        with urllib.request.urlopen(request, timeout=_LIMIT_S) as answer:
            body: bytes = answer.read()
            return body


def site() -> Path:
    """Return the folder with the packages of the registries; install them first if they are missing."""
    completed = subprocess.run([_ROOT / "scripts" / "registries-site"], check=True, stdout=subprocess.PIPE, text=True)
    return Path(completed.stdout.strip())


@contextmanager
def running(port: int, folder: Path) -> Iterator[MlflowServer]:
    """Run a server without models on 127.0.0.1 while the block runs, with its state in the folder."""
    (folder / "auth.ini").write_text(
        "[mlflow]\ndefault_permission = READ\n"
        f"database_uri = sqlite:///{folder}/users.db\nadmin_username = {_USER}\nadmin_password = {PASSWORD}\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": str(site()),
        "MLFLOW_AUTH_CONFIG_PATH": str(folder / "auth.ini"),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "only-for-tests",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "GIT_PYTHON_REFRESH": "quiet",
    }
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder}/runs.db", "--app-name", "basic-auth"]
    command += ["--artifacts-destination", str(folder / "artifacts"), "--serve-artifacts"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            start_new_session=True,
        )
    try:
        _wait(process, f"http://127.0.0.1:{port}/health", folder / "log")
        yield MlflowServer(f"http://127.0.0.1:{port}")
    finally:
        os.killpg(process.pid, 15)
        process.wait(_LIMIT_S)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline_s = time.monotonic() + _MAX_START_S
    while not answers(url):
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise RuntimeError(f"MLflow doesn't start:\n{log.read_text()[-2000:]}")
        time.sleep(0.2)
