"""Annotations that users set on a ModelDeployment, with a `halcyon` command or by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halcyon.api.types import GROUP

REASON = f"{GROUP}/reason"
"""Annotation with the user's reason for pausing scaling or for setting the replicas. The ScalingActive condition and
the `halcyon` commands show it."""
PAUSED_FROM = f"{GROUP}/paused-from"
"""Annotation with the value of spec.scaling.mode before `halcyon pause --all`. `halcyon resume` restores this value."""
MAX_REASON_LENGTH = 200
"""Maximum number of characters of the user's reason that are shown."""


def reason(meta: Mapping[str, Any]) -> str:
    """Return the value of the annotation `REASON`, on one line; empty if there is none."""
    text = " ".join(str((meta.get("annotations") or {}).get(REASON) or "").split())
    return text if len(text) <= MAX_REASON_LENGTH else text[: MAX_REASON_LENGTH - 3] + "..."
