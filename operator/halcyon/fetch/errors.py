"""Everything that can be wrong with a model, as its owner is to read it.

    FetchError            FetchFailed          the machine: a disk that is full, a mount that is missing
    ├── SourceError       ModelSourceNotFound  the source has no such folder, no version folder, or a link leads nowhere
    ├── StoreError        ModelStoreFailed     the object store or web server can't be reached, or says no
    ├── ConfigError       ModelConfigInvalid   config.pbtxt can't be read as a model configuration
    │   ├── UnknownFieldError                  it has a field or value that this version doesn't know
    │   └── BackendError                       the model runs by, or brings, what the site doesn't allow
    ├── ConflictError     ModelConfigConflict  config.pbtxt and the ModelDeployment ask for things that exclude each other
    └── DocumentError     OverlayInvalid       the overlay is not one that this version reads

The second column is the reason in the termination message, and so in the condition.
"""

from __future__ import annotations

import json
from typing import ClassVar

LIMIT_BYTES = 4096
"""The kubelet cuts a longer termination message, which would leave broken JSON."""


class FetchError(Exception):
    """The model can't be brought into the pod."""

    reason: ClassVar[str] = "FetchFailed"

    def report(self) -> str:
        """The termination message: one line of JSON, `reason` and `message`, LIMIT_BYTES at most."""
        message = str(self)
        text = self._json(message)
        while len(text) > LIMIT_BYTES:
            # A character takes up to 12 bytes (an escaped surrogate pair), so this ends short of the limit, not far off.
            message = message[: len(message) - max(1, (len(text) - LIMIT_BYTES) // 12)]
            text = self._json(message + " ...")
        return text

    def _json(self, message: str) -> str:
        return json.dumps({"reason": self.reason, "message": message})


class SourceError(FetchError):
    """The source doesn't hold the model."""

    reason = "ModelSourceNotFound"


class StoreError(FetchError):
    """The model can't be downloaded."""

    reason = "ModelStoreFailed"


class ModelConfigError(FetchError):
    """config.pbtxt can't be read."""

    reason = "ModelConfigInvalid"


class UnknownFieldError(ModelConfigError):
    """config.pbtxt may be right, but for a newer Triton than this version knows."""


class BackendError(ModelConfigError):
    """The site has a list of backends, and the model isn't within it."""


class ConflictError(FetchError):
    """config.pbtxt and the ModelDeployment don't go together."""

    reason = "ModelConfigConflict"


class DocumentError(FetchError):
    """The overlay can't be read: the operator and the fetcher are of different versions."""

    reason = "OverlayInvalid"
