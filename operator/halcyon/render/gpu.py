"""GPUs in a pod template: resource requests, resource claims and tolerations, and the number of GPUs."""

from __future__ import annotations

from halcyon.api.spec.gpu import NVIDIA_GPU, Gpu
from halcyon.api.types import GROUP, quantity
from halcyon.render.metadata import Object

COUNT = f"{GROUP}/gpus"
"""Annotation of a pod template with resource claims. Its value is the number of GPUs that the claims request, because
the operator doesn't read ResourceClaimTemplates."""
_CLAIM = "gpu"


def request(resources: Object, gpu: Gpu) -> None:
    """Add the GPUs of a replica to the resources of the Triton container."""
    if gpu.resource is None:
        resources["claims"] = [{"name": _CLAIM}]
    else:
        resources.setdefault("limits", {})[gpu.resource] = str(gpu.count)


def triton_args(gpu: Gpu | None) -> list[str]:
    """Return Triton's arguments for these GPUs.

    For MIG slices, they disable the GPU metrics, which are always 0 there (`dcgm-exporter` issue 216).
    """
    is_slice = gpu is not None and gpu.count > 0 and "/mig-" in (gpu.resource or "")
    return ["--allow-gpu-metrics=false"] if is_slice else []


def claims(gpu: Gpu) -> list[Object]:
    """Return the resource claims of a pod. The result is empty if its GPUs are an extended resource."""
    name = gpu.resource_claim_template_name
    return [{"name": _CLAIM, "resourceClaimTemplateName": name}] if name else []


def tolerations(gpu: Gpu) -> list[Object]:
    """Return the tolerations that let pods run on nodes with these GPUs.

    The taints of such nodes are named like the GPU resource, or like that of whole GPUs.
    """
    resource = gpu.resource or NVIDIA_GPU
    keys = dict.fromkeys([NVIDIA_GPU, resource] if resource.startswith("nvidia.com/") else [resource])
    return [{"key": key, "operator": "Exists"} for key in keys]


def count(template: Object) -> int:
    """Return the number of GPUs that one pod of a template requests.

    Raises:
        ValueError: an amount is not a number, which no template of Halcyon contains.
    """
    pod = template.get("spec") or {}
    limits = ((c.get("resources") or {}).get("limits") or {} for c in pod.get("containers") or ())
    # Extended resources have a domain in their names, and only GPUs are requested this way.
    extended = sum(int(quantity(str(amount))) for each in limits for name, amount in each.items() if "/" in name)
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    return extended + (int(annotations.get(COUNT, 0)) if pod.get("resourceClaims") else 0)
