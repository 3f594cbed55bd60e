"""Exceptions of a model's configuration, with messages for the owner of the model.

Each exception has a reason for the fetcher's termination message. Errors that occur only in the fetcher are in
`fetch.errors`.
"""

from __future__ import annotations

from typing import ClassVar


class ModelError(Exception):
    """Exception for a model that cannot be served as it is."""

    reason: ClassVar[str] = "FetchFailed"


class ModelConfigError(ModelError):
    """Exception for an invalid config.pbtxt of a model."""

    reason = "ModelConfigInvalid"


class UnknownFieldError(ModelConfigError):
    """Exception for a config.pbtxt with a field or value that only a newer Triton can have."""


class ConflictError(ModelError):
    """Exception for a config.pbtxt and a ModelDeployment that contradict each other."""

    reason = "ModelConfigConflict"
