"""A model on real Triton pods that sleeps, so that its service law is known, and the cluster on which it runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.plane import NAME
from benchmarks.stand_in import Law
from demo import setup
from demo.kube import Kube
from demo.models import GRPC_PORT
from e2e.cluster.progress import say

LAW = Law()
"""Service law: 80 + 6 ms x rows, with batches of up to 8."""
HPA_SYNC_S = 15
STAND_INS = (
    "GPU time is simulated: the pods run on CPUs, and sleep for 80 + 6 b ms to process a batch of b rows (at most 8)",
)
_FOLDER = Path(__file__).parent / "model"
_IMAGE = "localhost/tritonserver-cpu:24.10"
_FILES = "sleeps"
_CPU, _MEMORY, _SHARED = "100m", "384Mi", "64Mi"


@contextmanager
def cluster() -> Iterator[Kube]:
    """Start the embedded cluster with Halcyon, installed as in the demo. It is removed when the context is left."""

    def print_step(title: str) -> None:
        say(f"bench: {title}")

    try:
        kube = setup.install(NAME, hpa_sync=f"{HPA_SYNC_S}s", step=print_step).kube
        kube.apply(files())
        try:
            yield kube
        finally:
            kube.close()
    finally:
        setup.remove(NAME, step=print_step)


def files() -> dict[str, Any]:
    """Return the ConfigMap with the model."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _FILES},
        "data": {name: (_FOLDER / name).read_text() for name in ("config.pbtxt", "model.py")},
    }


def model(
    name: str, *, start_s: float, replicas: int | None = None, scaling: dict[str, Any] | None = None, **traffic: Any
) -> dict[str, Any]:
    """Return a ModelDeployment of the model.

    Its initialize() sleeps for `start_s` seconds. `replicas` is used if `scaling` is None.
    """
    count = {} if replicas is None else {"replicas": replicas}
    return {
        "apiVersion": "serving.halcyon.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": name},
        "spec": {
            "model": {
                "source": {
                    "configMap": {
                        "name": _FILES,
                        "items": [
                            {"key": "config.pbtxt", "path": "config.pbtxt"},
                            {"key": "model.py", "path": "1/model.py"},
                        ],
                    }
                },
                "parameters": {
                    "t0_ms": f"{1000 * LAW.t0_s:g}",
                    "a_ms": f"{1000 * LAW.a_s:g}",
                    "start_ms": f"{1000 * start_s:g}",
                },
                "warmup": {},
            },
            "runtime": {
                "image": _IMAGE,
                "gpu": {"count": 0},
                "resources": {"requests": {"cpu": _CPU}, "limits": {"memory": _MEMORY}},
                "sharedMemory": _SHARED,
            },
            # maxQueueDelay is not set, because with it batches are less full under full load (docs/guides/batching.md).
            "batching": {"maxBatchSize": LAW.max_batch},
            "traffic": {"balancerReplicas": 1, "queueTimeout": "10s", "responseTimeout": "10s", **traffic},
            **count,
            **({} if scaling is None else {"scaling": scaling}),
        },
    }


def address(kube: Kube, name: str) -> str:
    """Return host:port of its gRPC endpoint."""
    return kube.must_address(name, GRPC_PORT)
