"""Exceptions of a model's configuration, with messages for the owner of the model.

    ModelError            FetchFailed          the model can't be served as it is
    ├── ModelConfigError  ModelConfigInvalid   config.pbtxt is not a valid model configuration
    │   └── UnknownFieldError                  config.pbtxt has a field or value that is unknown to this version
    └── ConflictError     ModelConfigConflict  config.pbtxt and the ModelDeployment contradict each other

The second column is the reason in the fetcher's termination message. `fetch.errors` has the errors of the fetcher alone.
"""

from __future__ import annotations

from typing import ClassVar


class ModelError(Exception):
    """The model cannot be served as it is."""

    reason: ClassVar[str] = "FetchFailed"


class ModelConfigError(ModelError):
    """config.pbtxt is invalid."""

    reason = "ModelConfigInvalid"


class UnknownFieldError(ModelConfigError):
    """config.pbtxt has a field or value that is unknown to this version, but may be valid for a newer Triton."""


class ConflictError(ModelError):
    """config.pbtxt and the ModelDeployment contradict each other."""

    reason = "ModelConfigConflict"
