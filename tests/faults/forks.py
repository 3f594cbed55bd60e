"""Operators as forks of a process that has imported everything, since imports take longer than most plans.

`python -m tests.faults.forks` reads one request per line and writes one answer per line, both JSON:

request                              answer
{"start": arguments, "log": path}    the child's process id
{"wait": pid}                        its exit status, negative for a signal; null while it runs
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from halcyon.control.reconcile import release_overlap
from halcyon.control.runtime import app, build
from halcyon.kube import leader_election
from tests.integration.operator_process import Operator, environment
from tests.integration.waiting import PATIENCE

_POLL_S = 0.02
_REAL_LEASES = "--real-leases"


class Forks:
    """The parent of the operators, a context manager.

    Leases have the times of a real operator if `real_leases` is set; else a busy machine has more time.
    """

    def __init__(self, *, real_leases: bool = False) -> None:
        self._real_leases = real_leases

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.faults.forks", *([_REAL_LEASES] if self._real_leases else [])]
        paths = os.pathsep.join(filter(None, (str(Path.cwd()), os.environ.get("PYTHONPATH", ""))))
        self._parent = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # an interruption is for the tests, which end the operators
            env=environment() | {"PYTHONPATH": paths},
        )
        self._lock = threading.Lock()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.close()
        self._parent.wait(30)
        self._parent.stdout.close()

    def send(self, request: Any) -> Any:
        """Send a request to the parent, and return its answer."""
        with self._lock:
            assert self._parent.stdin is not None
            assert self._parent.stdout is not None
            self._parent.stdin.write(json.dumps(request) + "\n")
            self._parent.stdin.flush()
            return json.loads(self._parent.stdout.readline())


@dataclass
class ForkedProcess:
    """A forked operator, with the methods of `subprocess.Popen` that tests use."""

    forks: Forks
    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs."""
        if self.returncode is None:
            self.returncode = self.forks.send({"wait": self.pid})
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return the exit status.

        Raises:
            subprocess.TimeoutExpired: it runs longer than `timeout` seconds.
        """
        timeout = math.inf if timeout is None else timeout
        end = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("forked operator", timeout)
            time.sleep(_POLL_S)
        return status

    def kill(self) -> None:
        """Kill it, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


@dataclass
class ForkedOperator(Operator):
    """One operator replica, started by a fork."""

    forks: Forks | None = None
    began: float = 0.0
    """Monotonic time of the start, in seconds."""

    def start(self) -> None:
        """Start the process, without waiting until it is ready."""
        assert self.forks is not None
        self.began = time.monotonic()
        pid = self.forks.send({"start": self.arguments, "log": str(self.log)})
        self.process = ForkedProcess(self.forks, pid)


def _child(arguments: list[str], log: str) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for number in (1, 2):
        os.dup2(file, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    random.seed()
    status = 1
    try:
        status = app.main(arguments)
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    finally:
        os._exit(status)


def _give_leases_time() -> None:
    """Give leases as much more time as all bounds of the tests, so that a busy machine takes none.

    No oracle is about the time of a lease: each operator has the name of the one before, so it leads at once.
    """
    for module in (leader_election, build, release_overlap):
        for name in ("DURATION_S", "RENEW_DEADLINE_S"):
            if hasattr(module, name):
                setattr(module, name, type(getattr(module, name))(getattr(module, name) * PATIENCE))


def _waited(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def main() -> None:
    """Answer requests until the input ends, and then kill the children that are left."""
    if _REAL_LEASES not in sys.argv:
        _give_leases_time()
    children: set[int] = set()
    for line in sys.stdin:
        request = json.loads(line)
        if "start" in request:
            answer: int | None = os.fork()
            if answer == 0:
                _child(request["start"], request["log"])
            children.add(int(answer or 0))
        else:
            answer = _waited(request["wait"])
            if answer is not None:
                children.discard(request["wait"])
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
