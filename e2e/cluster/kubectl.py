"""kubectl and Helm for one cluster, for tests, scenarios and the demo.

They return the output, or raise an error with it.
"""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LIMIT_S = 180


class KubectlError(Exception):
    """A program that failed or timed out. The message is its command line and its output."""


def run(program: Path, *arguments: str, kubeconfig: Path, stdin: str | None = None) -> str:
    """Run a program that reads KUBECONFIG, and return its stdout.

    Raises:
        KubectlError: it failed, or took longer than 3 minutes.
    """
    words = " ".join((program.name, *arguments))
    try:
        completed = subprocess.run(
            [program, *arguments],
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise KubectlError(f"{words}: no end within {_LIMIT_S} s") from None
    if completed.returncode:
        raise KubectlError(f"{words}: {completed.stderr.strip()}")
    return completed.stdout


@dataclass(frozen=True, kw_only=True)
class Kubectl:
    """kubectl from the folder PROGRAMS, with a kubeconfig, optionally in a NAMESPACE.

    Example:
        `kubectl("get", "pods", "-o", "name")`; `kubectl("apply", "-f", "-", stdin=manifest)`
    """

    programs: Path
    kubeconfig: Path
    namespace: str | None = None

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        """Run `kubectl ARGUMENTS`, and return its stdout.

        Raises:
            KubectlError: it failed.
        """
        scope = [] if self.namespace is None else [f"--namespace={self.namespace}"]
        return run(self.programs / "kubectl", *scope, *arguments, kubeconfig=self.kubeconfig, stdin=stdin)

    def get(self, *arguments: str) -> dict[str, Any]:
        """Run `kubectl get ARGUMENTS -o json` and return the object."""
        answer = json.loads(self("get", *arguments, "-o", "json"))
        assert isinstance(answer, dict)
        return answer

    def apply(self, *objects: dict[str, Any], arguments: tuple[str, ...] = ("--server-side",)) -> str:
        """Apply objects, server-side by default, and return kubectl's output."""
        manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        return self("apply", *arguments, "-f", "-", stdin=manifest)
