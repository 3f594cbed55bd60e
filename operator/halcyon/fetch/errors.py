"""Exceptions of the fetcher, with messages for the owner of the model.

    FetchError            FetchFailed          a problem in the pod, for example a full disk or a missing mount
    ├── SourceError       ModelSourceNotFound  the source has no such folder, no version folder, or a link without a target
    ├── StoreError        ModelDownloadFailed  the object store or web server cannot be reached, or denies access
    ├── ModelConfigError  ModelConfigInvalid   config.pbtxt is not a valid model configuration
    │   ├── UnknownFieldError                  config.pbtxt has a field or value that this version does not know
    │   └── BackendError                       the model uses or contains a backend that the site does not allow
    ├── ConflictError     ModelConfigConflict  config.pbtxt and the ModelDeployment contradict each other
    └── DocumentError     OverlayInvalid       this version cannot parse the overlay

The second column is the reason in the termination message, from which the operator copies it to the condition.
"""

from __future__ import annotations

import json
from typing import ClassVar

MAX_BYTES = 4096
"""Maximum size of a termination message. The kubelet truncates longer ones, which would leave invalid JSON."""


class FetchError(Exception):
    """The model cannot be made available in the pod."""

    reason: ClassVar[str] = "FetchFailed"

    def report(self) -> str:
        """Return the termination message: a line of JSON with `reason` and `message`, at most `MAX_BYTES` long."""
        message = str(self)
        text = self._json(message)
        while len(text) > MAX_BYTES:
            # Remove one character per 12 excess bytes, the size of an escaped surrogate pair, so that not much more than necessary is lost.
            message = message[: len(message) - max(1, (len(text) - MAX_BYTES) // 12)]
            text = self._json(message + " ...")
        return text

    def _json(self, message: str) -> str:
        return json.dumps({"reason": self.reason, "message": message})


class SourceError(FetchError):
    """The model does not exist in the source, or has an invalid layout."""

    reason = "ModelSourceNotFound"


class StoreError(FetchError):
    """The model cannot be downloaded."""

    reason = "ModelDownloadFailed"


class ModelConfigError(FetchError):
    """config.pbtxt is invalid."""

    reason = "ModelConfigInvalid"


class UnknownFieldError(ModelConfigError):
    """config.pbtxt has a field or value that is unknown to this version, but may be valid for a newer Triton."""


class BackendError(ModelConfigError):
    """The model uses or contains a backend that is not in the site's list of allowed backends."""


class ConflictError(FetchError):
    """config.pbtxt and the ModelDeployment contradict each other."""

    reason = "ModelConfigConflict"


class DocumentError(FetchError):
    """The overlay cannot be parsed, because the operator and the fetcher have different versions."""

    reason = "OverlayInvalid"
