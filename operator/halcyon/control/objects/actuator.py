"""The actuator of a model: the component that writes its `spec.replicas`."""

from __future__ import annotations

from enum import Enum


class Actuator(Enum):
    """Component that writes a model's `spec.replicas`: an HPA, the operator itself (Direct), or neither (None)."""

    NONE = "None"
    HPA = "HPA"
    DIRECT = "Direct"
