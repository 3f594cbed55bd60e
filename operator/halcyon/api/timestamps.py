"""Conversion between RFC 3339, the form of times in Kubernetes objects and in our documents, and seconds since the epoch."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(at: float) -> str:
    """Format seconds since the epoch in whole seconds, for example 2026-11-28T03:15:00Z."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def epoch_seconds(text: object) -> float | None:
    """Parse a timestamp of an object; None if it is missing or not a time."""
    try:
        return datetime.fromisoformat(text).timestamp() if isinstance(text, str) and text else None
    except ValueError:
        return None
