"""`spec.runtime.gpu`: GPUs of each server pod, as an extended resource or as devices of a ResourceClaim."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints

from halcyon.api.types import DNS_NAME, DnsName, Documented, Rule

WHOLE = "nvidia.com/gpu"
"""Extended resource that NVIDIA's device plugin offers. It is the default."""


class Gpu(Documented):
    """GPUs of each server pod."""

    count: Annotated[int, Field(ge=0, le=16)] = 1
    """Number of GPUs per pod, 0 to 16. With 0 the model runs on CPU, as without `gpu`. With `resourceClaimTemplateName`
    it is the number of devices that the template requests. Default: 1."""
    resource_name: (
        Annotated[
            str,
            StringConstraints(pattern=rf"^{DNS_NAME}/[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?$", max_length=244),
        ]
        | None
    ) = None
    """Resource under which the node's device plugin offers the GPUs, for example `nvidia.com/mig-1g.10gb` for a MIG
    slice or `nvidia.com/gpu.shared` for a shared GPU. Each one counts as a GPU in quotas, the GPU budget and costs.
    Default: `nvidia.com/gpu`, whole GPUs."""
    resource_claim_template_name: DnsName | None = None
    """ResourceClaimTemplate in the same namespace, from which each pod gets a ResourceClaim (dynamic resource
    allocation). `count` must be the number of devices that it requests: limits, the GPU budget and costs count that
    many. Not together with `resourceName`. Default: none."""

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
        return None if self.resource_claim_template_name else self.resource_name or WHOLE
