"""Annotations of a ModelDeployment that people write, through a command or by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halcyon.api.types import GROUP

REASON = f"{GROUP}/reason"
"""Why somebody has paused scaling or set the count: shown with the condition ScalingActive and by the commands."""
MAX_REASON_LENGTH = 200
"""Characters of it that are shown."""


def reason(meta: Mapping[str, Any]) -> str:
    """What a person has given as the reason, on one line; empty where nobody has."""
    said = " ".join(str((meta.get("annotations") or {}).get(REASON) or "").split())
    return said if len(said) <= MAX_REASON_LENGTH else said[: MAX_REASON_LENGTH - 3] + "..."
