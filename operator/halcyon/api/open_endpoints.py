"""Paths and methods of a server that clients may use, over HTTP and gRPC. Balancers and routes of Gateways forward no others."""

from __future__ import annotations

from typing import Final

HTTP_SERVER_READS: Final = ("/v2", "/v2/health/live", "/v2/health/ready")
"""Paths of the server's own metadata and health, for GET and HEAD."""
HTTP_MODEL_READS: Final = ("", "/ready", "/config", "/stats")
"""Endings of paths below the model, or below one of its versions, for GET and HEAD."""
HTTP_MODEL_CALLS: Final = ("/infer", "/generate", "/generate_stream")
"""Endings of paths below the model, or below one of its versions, for POST."""

GRPC_INFERENCE: Final = "inference.GRPCInferenceService"
GRPC_HEALTH: Final = "grpc.health.v1.Health"
GRPC_CALLS: Final = ((GRPC_INFERENCE, "ModelInfer"), (GRPC_INFERENCE, "ModelStreamInfer"))
"""Inference methods, as pairs of service and method."""
# ModelStatistics without a model name returns all models of the pod, which serves only one.
GRPC_READS: Final = (
    *((GRPC_INFERENCE, "Model" + what) for what in ("Ready", "Metadata", "Config", "Statistics")),
    *((GRPC_INFERENCE, "Server" + what) for what in ("Live", "Ready", "Metadata")),
    (GRPC_HEALTH, "Check"),
)
"""Read-only methods, as pairs of service and method."""


def model_path(model: str) -> str:
    """Return the path of the model, without a version."""
    return f"/v2/models/{model}"
