"""gRPC connection settings of Triton servers to which clients connect without a balancer."""

from __future__ import annotations

MAX_AGE_MS = 60_000
"""Maximum age of a gRPC channel, in milliseconds. Clients reconnect after this time, and find new pods then."""
_MIN_AGE_MS = 500
_PING_INTERVAL_MS = 5_000
"""Minimum interval of a client's keepalive pings, in milliseconds: half of the 10 s that gRPC libraries allow at least."""


def triton_args(*, drain_s: int) -> list[str]:
    """Return the Triton arguments that make gRPC clients reconnect after a maximum time, and that allow their keepalive pings.

    Clients find newer pods when they reconnect. Channels are not closed by force after the maximum time, so streams may last longer.
    By default, Triton closes a channel after three pings within 5 minutes, also while a request is in progress.
    """
    return [
        f"--grpc-max-connection-age={connection_age_ms(drain_s)}",
        f"--grpc-http2-min-recv-ping-interval-without-data={_PING_INTERVAL_MS}",
        "--grpc-keepalive-permit-without-calls=1",
    ]


def connection_age_ms(drain_s: int) -> int:
    """Return the maximum age of a gRPC channel, in milliseconds.

    It is shorter than the drain by more than gRPC's jitter of 10 %. A stopping pod waits for at most the drain until no client is
    connected. Clients that connect in the first seconds of the drain must be asked to reconnect before it ends.
    """
    return max(min(drain_s * 1000 * 2 // 3, MAX_AGE_MS), _MIN_AGE_MS)
