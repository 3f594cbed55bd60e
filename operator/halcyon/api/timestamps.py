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


def epoch_seconds(text: object) -> float | None:
    """Parse a timestamp of an object; None if it is missing or not a time."""
    try:
        return datetime.fromisoformat(text).timestamp() if isinstance(text, str) and text else None
    except ValueError:
        return None
