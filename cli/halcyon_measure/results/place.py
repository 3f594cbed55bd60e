"""Environment of a measurement: the measured server, its location and its hardware. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from halcyon_measure.results.figure import Part


class ContainerLimits(Part):
    """Resource limits of a container as Kubernetes quantities; empty if there is no limit."""

    cpu: str = Field(default="", description="CPU, for example 4 or 500m.")
    memory: str = Field(default="", description="Memory, for example 8Gi.")
    gpu: str = Field(default="", description="GPUs, or slices of one, for example 1.")


class Place(Part):
    """Location and hardware of the server, with which the measurement can be repeated."""

    kind: Literal["url", "copy", "trial", "live"] = Field(
        description="url: any server; copy: a copy of a ModelDeployment; trial: a pod with its server container; live: the served ModelDeployment."
    )
    namespace: str | None = Field(default=None, description="Namespace of the ModelDeployment; null for a URL.")
    name: str | None = Field(default=None, description="Name of the ModelDeployment that the result is about.")
    measured: str | None = Field(default=None, description="Name of the ModelDeployment that got the load.")
    revision: str | None = Field(default=None, description="Revision of the measured pods.")
    source: str | None = Field(default=None, description="Source of the model: volume, image or URI.")
    image: str | None = Field(default=None, description="Image of the server.")
    image_id: str | None = Field(default=None, description="Image of the server with its digest, as the node has it.")
    node: str | None = Field(default=None, description="Node of the server's pod, or the nodes, comma-separated.")
    gpu_product: str | None = Field(
        default=None,
        description="GPU product of the node, from its label nvidia.com/gpu.product; null if the server has no GPU.",
    )
    limits: ContainerLimits | None = Field(default=None, description="Resource limits of the server container.")
    routing: str | None = Field(default=None, description="How requests reach the pods: balancer, service or gateway.")
    replicas: int | None = Field(default=None, description="Replicas that were ready when the measurement began.")
    client_node: str | None = Field(default=None, description="Node of the client's pod; null outside a cluster.")
    client_limits: ContainerLimits | None = Field(default=None, description="Resource limits of the client.")
    arguments: tuple[str, ...] = Field(
        default=(), description="Arguments of halcyon bench, with the seed, that repeat the measurement."
    )
    ended: str | None = Field(
        default=None,
        description="Reason why the measurement of a served model ended early; null if it didn't end early.",
    )
