"""Conversion between RFC 3339, the form of times in Kubernetes objects and in our documents, and seconds since the epoch."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

Precision = Literal["seconds", "milliseconds", "microseconds"]


def rfc3339(at: float, precision: Precision = "seconds") -> str:
    """Format seconds since the epoch, rounded down to `precision`, for example 2026-11-28T03:15:00Z.

    Objects have times in seconds, Leases and Events in microseconds, our logs in milliseconds.
    """
    return f"{datetime.fromtimestamp(at, UTC).replace(tzinfo=None).isoformat(timespec=precision)}Z"


def parse_rfc3339(text: object) -> datetime | None:
    """Parse a timestamp; None if it is missing, malformed or without a time zone."""
    try:
        at = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return at if at is not None and at.tzinfo is not None else None


def epoch_seconds(text: object) -> float | None:
    """Parse a timestamp to seconds since the epoch; None if it is missing, malformed or without a time zone."""
    at = parse_rfc3339(text)
    return None if at is None else at.timestamp()
