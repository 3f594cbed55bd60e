"""gRPC connection settings of a Triton that clients reach without a balancer."""

from __future__ import annotations

MAX_AGE_MS = 60_000
"""Maximum age of a channel: every channel finds a new pod within this time, however long the drain is."""
_MIN_AGE_MS = 500


def triton_args(*, drain_s: int) -> list[str]:
    """Return the arguments of such a Triton.

    gRPC channels are asked to reconnect after a while, so that they find newer pods. There is no deadline for closing them:
    streams may last as long as they need.
    """
    return [f"--grpc-max-connection-age={connection_age_ms(drain_s)}"]


def connection_age_ms(drain_s: int) -> int:
    """Return the maximum age of a gRPC channel in ms.

    It is shorter than the drain by more than gRPC's 10 % jitter. A stopping pod waits up to the drain until no client is
    connected, and clients that connect in its first seconds must have been asked to leave by then.
    """
    return max(min(drain_s * 1000 * 2 // 3, MAX_AGE_MS), _MIN_AGE_MS)
