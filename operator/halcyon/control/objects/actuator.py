"""The actuator of a model: the component that writes its `spec.replicas`."""

from __future__ import annotations

from enum import Enum


class Actuator(Enum):
    """The writer of `spec.replicas`."""

    NONE = "None"
    HPA = "HPA"
    DIRECT = "Direct"
