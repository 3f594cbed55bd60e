"""kubectl against one cluster, for tests and scenarios."""

import json
import os
import subprocess
from dataclasses import dataclass
from typing import Any

from e2e.cluster.cluster import Cluster

_LIMIT_S = 120


class KubectlError(Exception):
    """Kubectl exited with a status other than 0; the message is what it said."""


@dataclass(frozen=True, kw_only=True)
class Kubectl:
    """Calls kubectl as the cluster's administrator, in NAMESPACE where one is given.

    Example:
        `kubectl("get", "pods", "-o", "name")`; `kubectl("apply", "-f", "-", stdin=manifest)`
    """

    cluster: Cluster
    namespace: str | None = None

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        """Run `kubectl ARGUMENTS` and return what it printed on stdout.

        Raises:
            KubectlError: it failed.
        """
        scope = [] if self.namespace is None else [f"--namespace={self.namespace}"]
        done = subprocess.run(
            [self.cluster.bin / "kubectl", *scope, *arguments],
            env={**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig)},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=_LIMIT_S,
        )
        if done.returncode:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def get(self, *arguments: str) -> dict[str, Any]:
        """Run `kubectl get ARGUMENTS -o json` and return the object."""
        answer = json.loads(self("get", *arguments, "-o", "json"))
        assert isinstance(answer, dict)
        return answer

    def apply(self, *objects: dict[str, Any], arguments: tuple[str, ...] = ("--server-side",)) -> str:
        """Apply objects, server-side unless told otherwise, and return kubectl's words."""
        manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        return self("apply", *arguments, "-f", "-", stdin=manifest)
