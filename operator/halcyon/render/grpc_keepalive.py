"""What a Triton does for itself where clients reach it without a balancer of ours."""

from __future__ import annotations

MAX_AGE_MS = 60_000
"""A pod that has just come is found by every channel within this time, however long the drain is."""
_MIN_AGE_MS = 500


def triton_args(*, drain_s: int) -> list[str]:
    """Arguments of that Triton.

    Channels of gRPC are asked to come again after a while, so that they find pods that came later. No time is set within which
    they have to be gone: streams last as long as they do.
    """
    return [f"--grpc-max-connection-age={connection_age_ms(drain_s)}"]


def connection_age_ms(drain_s: int) -> int:
    """How old a channel of gRPC may be.

    Less than the drain, by more than gRPC's own tenth of chance: a stopping pod waits for the drain until nobody is connected,
    and whoever comes in its first seconds must have been asked to go by then.
    """
    return max(min(drain_s * 1000 * 2 // 3, MAX_AGE_MS), _MIN_AGE_MS)
