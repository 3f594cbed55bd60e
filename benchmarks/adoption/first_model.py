"""Time from README's first command to a scaled model on an embedded cluster, and its recording as an asciicast.

    python -m benchmarks.adoption.first_model            # records the row 1 of the table adoption
    python -m benchmarks.adoption.first_model --record   # also writes docs/images/first-model.cast

The cluster is the embedded one, started before the clock. README's first command, which builds images with docker and
loads them into kind, is replaced by the load of the same images into the node. All other words are README's.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmarks.quality.rows import ROOT, Row, record
from demo import models
from demo.kube import Kube
from e2e import interrupts
from e2e.blocks import blocks
from e2e.cluster import cluster as clusters
from e2e.cluster.cluster import Cluster
from e2e.cluster.options import Options
from e2e.load import process
from e2e.load.settings import Load
from images.build import build_images
from images.engine import kind_values

NAME = "adoption"
CAST = ROOT / "docs" / "images" / "first-model.cast"
TARGET_S = 300
COMMANDS = 3
VALUES = "build/images-values.yaml"
_LOAD_S = 40.0
_COLUMNS, _ROWS = 100, 46
EXAMPLE = "minimal.yaml"


class Terminal:
    """A shell session whose commands and output are kept with their times."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._began = time.monotonic()
        self.events: list[tuple[float, str]] = []

    @property
    def now_s(self) -> float:
        """Seconds since the session began."""
        return time.monotonic() - self._began

    def run(self, command: str, *, shown: str = "", limit_s: float = 240) -> str:
        """Run a command, and return its output. `shown` is the text in the recording.

        Raises:
            RuntimeError: the command failed, or did not end in time; the message ends with its output.
        """
        self.events.append((self.now_s, f"$ {shown or command}\n"))
        lines: list[str] = []
        # A session of its own, so that programs that the shell has started end with it.
        with subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as running:
            limit = threading.Timer(limit_s, os.killpg, (running.pid, signal.SIGKILL))
            limit.start()
            try:
                for line in running.stdout or ():
                    lines.append(line)
                    self.events.append((self.now_s, line))
                status = running.wait()
            except BaseException:
                os.killpg(running.pid, signal.SIGKILL)
                raise
            finally:
                limit.cancel()
        if status:
            problem = f"not ended within {limit_s:g} s" if status == -signal.SIGKILL else f"exit status {status}"
            raise RuntimeError(f"{command}: {problem}\n{''.join(lines)[-3000:]}")
        return "".join(lines)

    def note(self, text: str) -> None:
        """Add a line to the recording that no command printed."""
        self.events.append((self.now_s, text + "\n"))


def readme_commands() -> list[str]:
    """Return the commands of README's first block of shell, without their comments."""
    first = blocks(ROOT / "README.md", "sh")[0].replace("\\\n", " ")
    return [re.sub(r"\s+#.*$", "", line) for line in first.splitlines() if line.strip()]


@contextlib.contextmanager
def embedded() -> Iterator[Cluster]:
    """Run a cluster whose node has the images. Exit: the cluster is removed."""
    build_images()
    try:
        with interrupts.heeded():
            yield clusters.up(NAME, Options())
    finally:
        clusters.down(NAME)


def image_values(folder: Path) -> Path:
    """Write the values file that `make kind` writes, for images on the embedded node, and return its path."""
    file = folder / "images-values.yaml"
    file.write_text(yaml.safe_dump(kind_values()))
    return file


def quickstart(cluster: Cluster, folder: Path) -> tuple[float, Terminal]:
    """Run README's commands; return the seconds until the scaled model is ready, and the session."""
    environment = {
        **os.environ,
        "PATH": f"{cluster.bin}:{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
        "KUBECONFIG": str(cluster.kubeconfig),
        "NO_COLOR": "1",
        "COLUMNS": str(_COLUMNS),
    }
    commands = readme_commands()
    values = image_values(folder)
    terminal = Terminal(environment)
    for command in commands[1:]:  # the first one is replaced: see the head of this module
        terminal.run(command.replace(VALUES, str(values)), shown=command)
    name = _name()
    terminal.run(f"kubectl wait --for=condition=Ready mdep/{name} --timeout=180s")
    terminal.run(f"kubectl scale mdep/{name} --replicas=2")
    terminal.run(f"kubectl wait --for=jsonpath='{{.status.readyReplicas}}'=2 mdep/{name} --timeout=120s")
    return terminal.now_s, terminal


def _name() -> str:
    """Return the name of the model in README's example."""
    documents = yaml.safe_load_all((ROOT / "manifests" / "examples" / EXAMPLE).read_text())
    return next(str(document["metadata"]["name"]) for document in documents if document["kind"] == "ModelDeployment")


def under_load(cluster: Cluster, terminal: Terminal, folder: Path) -> None:
    """Deploy the digits model with a latency objective, put load on it, and keep what a user sees."""
    kube = Kube(kubeconfig=cluster.kubeconfig, programs=cluster.bin, namespace="default", reachable=True)
    documents = models.documents()
    spec: dict[str, Any] = documents["ModelDeployment"]["spec"]
    spec["runtime"] = {"resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "2Gi"}}}
    spec["model"]["parameters"] = {"gpu_ms": "40", "gpu_ms_per_row": "5"}
    spec["batching"] = {"maxBatchSize": 8}
    spec["scaling"] = {"minReplicas": 1, "maxReplicas": 4, "targets": {"latency": "300ms"}}
    file = folder / "my-model.yaml"
    file.write_text(yaml.safe_dump_all(documents.values()))
    terminal.run(f"kubectl apply -f {file}", shown="kubectl apply -f my-model.yaml")
    terminal.run("kubectl wait --for=condition=Ready mdep/digits --timeout=180s")
    address = kube.must_address("digits", models.GRPC_PORT)
    terminal.note(f"# load: 180 requests per second for {_LOAD_S:.0f} s")
    with process.RunningLoad(Load(address=address, model="digits", rate_rps=180, clients=400, duration_s=_LOAD_S)):
        terminal.run("timeout 38 kubectl get mdep digits --watch || true", shown="kubectl get mdep digits --watch")
        terminal.run("halcyon explain digits")


def cast(events: list[tuple[float, str]]) -> str:
    """Return the session in asciicast format, version 2."""
    head = {"version": 2, "width": _COLUMNS, "height": _ROWS, "title": "A first model on Halcyon"}
    lines = [json.dumps(head), *(json.dumps([round(at, 2), "o", text]) for at, text in events)]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Measure, record the row, and write the recording if asked."""
    with embedded() as cluster, tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        took_s, terminal = quickstart(cluster, folder)
        if "--record" in arguments:
            under_load(cluster, terminal, folder)
            CAST.write_text(cast(terminal.events))
    record(
        "adoption",
        [
            Row(
                id="1",
                what="README's commands on a fresh cluster, from helm install to a model with two ready replicas",
                value={"seconds": round(took_s, 1), "commands": len(readme_commands())},
                target="<= 5 min, 3 commands",
                limits=[("seconds", TARGET_S, "<="), ("commands", COMMANDS, "<=")],
                command="python -m benchmarks.adoption.first_model",
                stand_ins="the embedded cluster for kind; its node has the images that the first command would build and load",
                raw=terminal.events,
            )
        ],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
