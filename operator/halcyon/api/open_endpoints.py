"""HTTP paths and gRPC methods of a server that clients may use.

Balancers and Gateway routes forward no other requests.
"""

from __future__ import annotations

from typing import Final

HTTP_SERVER_READS: Final = ("/v2", "/v2/health/live", "/v2/health/ready")
"""HTTP paths of the server's own metadata and health, which clients may read with GET and HEAD."""
HTTP_MODEL_READS: Final = ("", "/ready", "/config", "/stats")
"""Endings of HTTP paths for GET and HEAD requests by clients. They follow the path of the model or of a version."""
HTTP_STREAM: Final = "/generate_stream"
"""Ending of the HTTP path whose response is a stream of events."""
HTTP_MODEL_CALLS: Final = ("/infer", "/generate", HTTP_STREAM)
"""Endings of HTTP paths for POST requests by clients. They follow the path of the model or of a version."""

GRPC_INFERENCE: Final = "inference.GRPCInferenceService"
GRPC_HEALTH: Final = "grpc.health.v1.Health"
GRPC_CALLS: Final = ((GRPC_INFERENCE, "ModelInfer"), (GRPC_INFERENCE, "ModelStreamInfer"))
"""gRPC methods for inference, as pairs of service and method."""
# ModelStatistics without a model name returns all models of the pod, which serves only one.
GRPC_READS: Final = (
    *((GRPC_INFERENCE, "Model" + method) for method in ("Ready", "Metadata", "Config", "Statistics")),
    *((GRPC_INFERENCE, "Server" + method) for method in ("Live", "Ready", "Metadata")),
    (GRPC_HEALTH, "Check"),
)
"""gRPC methods that only read, as pairs of service and method."""


def model_path(model: str) -> str:
    """Return the HTTP path of the model, without a version."""
    return f"/v2/models/{model}"
