"""`spec.runtime.gpu`: GPUs of each server pod, as an extended resource or as devices of a ResourceClaim."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints

from halcyon.api.types import DNS_NAME, ApiModel, DnsName, Rule

NVIDIA_GPU = "nvidia.com/gpu"
"""Extended resource of NVIDIA's device plugin, which is the default."""


class Gpu(ApiModel):
    """GPUs of each server pod."""

    count: Annotated[int, Field(ge=0, le=16)] = 1
    """Number of GPUs per pod, 0 to 16. With 0, the model runs on CPU. With `resourceClaimTemplateName`, set the number
    of devices that the template requests. Default: 1."""
    resource_name: (
        Annotated[
            str,
            StringConstraints(pattern=rf"^{DNS_NAME}/[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?$", max_length=244),
        ]
        | None
    ) = None
    """Name of the extended resource for the GPUs, for example `nvidia.com/mig-1g.10gb` for a MIG slice or
    `nvidia.com/gpu.shared` for a shared GPU. Each unit counts as one GPU in quotas, the GPU budget and costs. Default:
    `nvidia.com/gpu`, whole GPUs."""
    resource_claim_template_name: DnsName | None = None
    """Name of a ResourceClaimTemplate in the same namespace (dynamic resource allocation). Each pod gets its own
    ResourceClaim from the template. Set `count` to the number of devices that the template requests, because limits,
    the GPU budget and costs use `count`. Not together with `resourceName`. Default: none."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.resourceName) || !self.resourceName.contains('kubernetes.io/')",
            check=lambda m: m.resource_name is None or "kubernetes.io/" not in m.resource_name,
            message=(
                "spec.runtime.gpu.resourceName is {resourceName}; the domain kubernetes.io is reserved; for example "
                "resourceName: nvidia.com/mig-1g.10gb"
            ),
        ),
        Rule(
            cel="!has(self.resourceClaimTemplateName) || (self.count > 0 && !has(self.resourceName))",
            check=lambda m: m.resource_claim_template_name is None or (m.count > 0 and m.resource_name is None),
            message=(
                "spec.runtime.gpu.resourceClaimTemplateName is {resourceClaimTemplateName}, which needs a count of at "
                "least 1 and no resourceName; for example gpu: {{count: 1, resourceClaimTemplateName: one-gpu}}"
            ),
        ),
    )

    @property
    def resource(self) -> str | None:
        """Return the name of the extended resource for the GPUs; None if the GPUs are devices of a ResourceClaim."""
        return None if self.resource_claim_template_name else self.resource_name or NVIDIA_GPU
