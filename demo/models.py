"""ModelDeployments of the demo: the model digits from manifests/examples, and variants of it."""

import copy
import json
from pathlib import Path
from typing import Any

import yaml

from demo.errors import DemoError
from demo.kube import OWNER_LABEL, Kube, is_ready, wait_for

REPOSITORY = Path(__file__).resolve().parents[1]
MANIFEST = REPOSITORY / "manifests" / "examples" / "digits.yaml"
DIGITS = "digits"
HTTP_PORT, GRPC_PORT, TRITON_METRICS_PORT = 8000, 8001, 8002


def documents() -> dict[str, dict[str, Any]]:
    """Return the objects in digits.yaml, by kind."""
    return {document["kind"]: document for document in yaml.safe_load_all(MANIFEST.read_text())}


def digits(*, image: str | None = None, scale_down_after_s: int | None = None) -> dict[str, Any]:
    """Return the ModelDeployment of digits.yaml, optionally with another Triton image or scale-down time."""
    document = documents()["ModelDeployment"]
    if scale_down_after_s is not None:
        document["spec"]["scaling"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] = scale_down_after_s
    if image is not None:
        document["spec"]["runtime"]["image"] = image
    return document


def variant(
    name: str, *, replicas: int = 1, gpus: int = 1, batching: bool = True, image: str | None = None
) -> dict[str, Any]:
    """Return a copy of digits with another name, without scaling and with one balancer.

    `batching` selects dynamic batching.
    """
    document = copy.deepcopy(digits(image=image))
    document["metadata"]["name"] = name
    spec = document["spec"]
    del spec["scaling"]
    spec["replicas"] = replicas
    spec["runtime"]["gpu"] = {"count": gpus}
    spec["traffic"] = {"balancerReplicas": 1}
    if not batching:
        del spec["batching"]
    return dict(document)


def ready_servers(kube: Kube, name: str) -> int:
    """Return the number of a model's Ready model pods."""
    return sum(map(is_ready, kube.pods(name, "server")))


def wait_until_served(kube: Kube, *names: str, replicas: int = 1, limit_s: float = 90) -> float:
    """Wait until each model has its model pods and, if it uses one, a balancer; return the seconds that this took.

    If Service addresses are reachable from this machine, also wait until they accept connections, because kube-proxy
    learns of a Ready pod slightly later than the API server.

    Raises:
        DemoError: the time limit was exceeded; the message contains the models' conditions.
    """

    def served() -> bool:
        return all(
            ready_servers(kube, name) >= replicas
            and (any(map(is_ready, kube.pods(name, "balancer"))) or _needs_none(kube, name))
            and (not kube.reachable or kube.connects(name, HTTP_PORT))
            for name in names
        )

    try:
        return wait_for(served, goal=f"{', '.join(names)} served by {replicas} pods", limit_s=limit_s)
    except DemoError as error:
        raise DemoError(f"{error}\n" + "\n".join(condition_lines(kube, name) for name in names[:3])) from None


def _needs_none(kube: Kube, name: str) -> bool:
    return (kube.condition(name, "BalancerReady") or {}).get("reason") == "NoBalancer"


def condition_lines(kube: Kube, name: str) -> str:
    """Return the messages of a model's conditions, one line each."""
    conditions = ((kube.model(name) or {}).get("status") or {}).get("conditions") or []
    lines = [f"  {c['type']}={c['status']} {c['reason']}: {c['message']}" for c in conditions]
    return "\n".join([f"{name}:", *lines])


def delete(kube: Kube, *names: str, wait: bool = True) -> None:
    """Delete models; with `wait`, wait until their pods are gone."""
    if not names:
        return
    kube("delete", "modeldeployment", *names, "--ignore-not-found", "--wait=false")
    if wait:
        selector = f"{OWNER_LABEL} in ({','.join(names)})"
        path = f"/api/v1/namespaces/{kube.namespace}/pods"
        wait_for(
            lambda: kube.raw(path, labelSelector=selector)[0] == 200 and not kube.items(path, labelSelector=selector),
            goal=f"the pods of {', '.join(names)} go",
            limit_s=90,
        )


def triton_counts(kube: Kube, name: str) -> dict[str, tuple[float, float]]:
    """Return (rows, executions) of a model by pod, from Triton's counters."""
    counts = {}
    for pod in kube.pods(name, "server"):
        samples = kube.metrics(pod, TRITON_METRICS_PORT)
        if samples is not None:
            by_name = {sample.name: sample.value for sample in samples if sample.labels.get("model") == name}
            counts[pod["metadata"]["name"]] = (
                by_name.get("nv_inference_count", 0.0),
                by_name.get("nv_inference_exec_count", 0.0),
            )
    return counts


def mean_batch(before: dict[str, tuple[float, float]], after: dict[str, tuple[float, float]]) -> float | None:
    """Return the mean number of rows per execution between two readings of the counters.

    Pods that no longer exist are ignored, and the counters of new pods start at 0.
    """
    rows = executions = 0.0
    for pod, (rows_after, executions_after) in after.items():
        rows_before, executions_before = before.get(pod, (0.0, 0.0))
        rows += rows_after - rows_before
        executions += executions_after - executions_before
    return round(rows / executions, 2) if executions > 0 else None


def as_text(document: dict[str, Any]) -> str:
    """Return an object as text for kubectl."""
    return json.dumps(document)
