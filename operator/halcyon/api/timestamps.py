"""Conversion between timestamps in RFC 3339, as in Kubernetes objects, and seconds since the epoch."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Literal

from halcyon.api.string_forms import TIME

Precision = Literal["seconds", "milliseconds", "microseconds"]


def rfc3339(at: float, precision: Precision = "seconds") -> str:
    """Format seconds since the epoch as RFC 3339, rounded down to `precision`, for example 2026-11-28T03:15:00Z.

    Kubernetes objects use a precision of seconds, except Leases and Events, which use microseconds. Halcyon's logs use
    milliseconds.
    """
    return f"{datetime.fromtimestamp(at, UTC).replace(tzinfo=None).isoformat(timespec=precision)}Z"


def parse_rfc3339(text: object) -> datetime | None:
    """Parse a timestamp in RFC 3339; return None if it is missing, malformed or has no time zone."""
    try:
        at = datetime.fromisoformat(text.upper()) if isinstance(text, str) else None  # RFC 3339 allows `t` and `z`
    except ValueError:
        return None
    return at if at is not None and at.tzinfo is not None else None


def epoch_seconds(text: object) -> float | None:
    """Convert a timestamp in RFC 3339 to seconds since the epoch; return None if it is missing, malformed or has no time zone."""
    at = parse_rfc3339(text)
    return None if at is None else at.timestamp()


def is_date_time(text: str) -> bool:
    """Return whether a text is a valid timestamp in a form that the API server accepts. `parse_rfc3339` accepts more."""
    return re.fullmatch(TIME, text) is not None and parse_rfc3339(text) is not None
