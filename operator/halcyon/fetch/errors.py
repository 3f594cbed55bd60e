"""Errors with a model, worded for its owner.

    FetchError            FetchFailed          the machine: a full disk, a missing mount
    ├── SourceError       ModelSourceNotFound  the source has no such folder, no version folder, or a link with no target
    ├── StoreError        ModelDownloadFailed  the object store or web server can't be reached, or denies access
    ├── ModelConfigError  ModelConfigInvalid   config.pbtxt can't be read as a model configuration
    │   ├── UnknownFieldError                  it has a field or value that this version doesn't know
    │   └── BackendError                       the model uses or contains a backend that the site doesn't allow
    ├── ConflictError     ModelConfigConflict  config.pbtxt and the ModelDeployment exclude each other
    └── DocumentError     OverlayInvalid       this version can't read the overlay

The second column is the reason in the termination message, and so in the condition.
"""

from __future__ import annotations

import json
from typing import ClassVar

MAX_BYTES = 4096
"""The kubelet truncates a longer termination message, which would leave broken JSON."""


class FetchError(Exception):
    """The model can't be brought into the pod."""

    reason: ClassVar[str] = "FetchFailed"

    def report(self) -> str:
        """Return the termination message: one line of JSON, `reason` and `message`, at most LIMIT_BYTES."""
        message = str(self)
        text = self._json(message)
        while len(text) > MAX_BYTES:
            # A character takes up to 12 bytes (an escaped surrogate pair), so the result is below the limit, but not by much.
            message = message[: len(message) - max(1, (len(text) - MAX_BYTES) // 12)]
            text = self._json(message + " ...")
        return text

    def _json(self, message: str) -> str:
        return json.dumps({"reason": self.reason, "message": message})


class SourceError(FetchError):
    """The model isn't in the source."""

    reason = "ModelSourceNotFound"


class StoreError(FetchError):
    """The model can't be downloaded."""

    reason = "ModelDownloadFailed"


class ModelConfigError(FetchError):
    """config.pbtxt can't be read."""

    reason = "ModelConfigInvalid"


class UnknownFieldError(ModelConfigError):
    """config.pbtxt may be valid, but for a newer Triton than this version knows."""


class BackendError(ModelConfigError):
    """The site has a list of backends, and the model doesn't keep to it."""


class ConflictError(FetchError):
    """config.pbtxt and the ModelDeployment contradict each other."""

    reason = "ModelConfigConflict"


class DocumentError(FetchError):
    """The overlay can't be read: the operator and the fetcher are of different versions."""

    reason = "OverlayInvalid"
