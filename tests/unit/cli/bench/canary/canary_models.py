"""Served models, and a cluster with one of them whose operator follows a script of statuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from halcyon.kube.kinds import Kind
from halcyon_cli.errors import ClusterError
from halcyon_tune.patch import merged

SPEC: dict[str, Any] = {
    "replicas": 2,
    "model": {"source": {"uri": "s3://models/m"}},
    "batching": {"maxBatchSize": 8},
    "runtime": {"gpu": {"count": 1}},
}
CHANGE: dict[str, Any] = {"batching": {"maxBatchSize": 32}, "runtime": {"instancesPerGPU": 2}}
CONDITIONS = [{"type": "Accepted", "status": "True"}, {"type": "Ready", "status": "True"}]


def status(
    phase: str = "Complete", *, target: str = "m-1", current: str = "m-1", generation: int = 3, **rollout: Any
) -> dict[str, Any]:
    return {
        "observedGeneration": generation,
        "conditions": CONDITIONS,
        "revision": {"current": current, "target": target},
        "rollout": {"phase": phase, **rollout},
    }  # fmt: skip


def model(state: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    meta = {"name": "m", "namespace": "team", "uid": "u", "generation": 3, "resourceVersion": "10"}
    parts = {name: value for name, value in (SPEC | spec).items() if value is not None}
    return json.loads(json.dumps({"metadata": meta, "spec": parts, "status": state or status()}))  # type: ignore[no-any-return]


def canary(step: int = 1, **rest: Any) -> dict[str, Any]:
    return status(
        "Progressing", target="m-2", generation=4, canary={"step": step, "weight": 5, "pods": 1}, message="step", **rest
    )


SERVED = status(target="m-2", current="m-2", generation=4)
WORSE = status(
    "RolledBack", target="m-2", generation=4, failed={"revision": "m-2", "message": "rolled back: p95 9 s", "reason": "r"}
)  # fmt: skip


class ScriptedCluster:
    """A cluster with one model. After each write of the spec, reads give the next statuses of the script."""

    namespace = "team"

    def __init__(
        self, *script: dict[str, Any] | Callable[[ScriptedCluster], None], first: dict[str, Any] | None = None
    ) -> None:
        self.stored = first or model()
        self.script = list(script)
        self.writes: list[dict[str, Any]] = []
        self.fails = 0
        """Number of further requests that fail."""

    def may(self, *_: object) -> bool:
        return True

    def items(self, *_: object, **__: object) -> list[Any]:
        return []

    def model(self, _: str) -> dict[str, Any]:
        if self.fails:
            self.fails -= 1
            raise ClusterError("the API server is gone")
        if self.writes and self.script:
            following = self.script.pop(0)
            if callable(following):
                following(self)
            else:
                self.stored["status"] = following
        return json.loads(json.dumps(self.stored))  # type: ignore[no-any-return]

    def change_version(self, _: Kind, __: str, body: Mapping[str, Any], version: str) -> dict[str, Any] | None:
        if self.fails:
            self.fails -= 1
            raise ClusterError("the API server is gone")
        if version != self.stored["metadata"]["resourceVersion"]:
            return None
        self.writes.append(json.loads(json.dumps(body)))
        before = self.stored["spec"]
        self.stored = merged(self.stored, body)
        meta = self.stored["metadata"]
        meta["resourceVersion"] = str(int(version) + 1)
        meta["generation"] += self.stored["spec"] != before
        if len(self.writes) > 1:
            # The operator restores the previous revision, or goes on with the one that serves.
            current = self.stored["spec"]["batching"]["maxBatchSize"]
            name = "m-1" if current == 8 else "m-2"
            self.stored["status"] = status(target=name, current=name, generation=meta["generation"])
            self.script = []
        return json.loads(json.dumps(self.stored))  # type: ignore[no-any-return]
