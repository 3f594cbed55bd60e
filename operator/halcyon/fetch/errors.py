"""Exceptions of the fetcher, with messages for the owner of the model.

Each exception has a reason for the fetcher's termination message, from which the operator copies it to the condition.
Other errors of a model's configuration are in `model_config.errors`.
"""

# ModelError
# ├── FetchError             FetchFailed          a problem in the pod, for example a full disk
# │   ├── SourceError        ModelSourceNotFound  the source has no such folder, no version folder, an unusable archive, or
# │   │                                           a link without a target
# │   ├── StoreError         ModelDownloadFailed  the object store or web server cannot be reached, or denies access
# │   └── DocumentError      OverlayInvalid       this version cannot parse the overlay
# ├── ModelConfigError       ModelConfigInvalid   the config.pbtxt is invalid
# │   ├── UnknownFieldError  ModelConfigInvalid   the config.pbtxt has a field or value that only a newer Triton can have
# │   └── BackendError       ModelConfigInvalid   the model uses or contains a backend that the site does not allow
# └── ConflictError          ModelConfigConflict  the config.pbtxt and the ModelDeployment contradict each other

from __future__ import annotations

import json
import re
import time

from halcyon.api.timestamps import rfc3339
from halcyon.model_config.errors import ModelConfigError, ModelError

MAX_BYTES = 4096
"""Maximum size of a termination message. The kubelet truncates longer ones, which would leave invalid JSON."""


class FetchError(ModelError):
    """Exception for a model that cannot be made available in the pod."""


def report(error: ModelError) -> str:
    """Return the fetcher's termination message, at most `MAX_BYTES` long.

    The message is a line of JSON with `reason` and `message`.
    """
    message = str(error)
    text = _json(error.reason, message)
    while len(text) > MAX_BYTES:
        # Remove one character per 12 excess bytes, the size of an escaped surrogate pair, so that not much more than necessary is lost.
        message = message[: len(message) - max(1, (len(text) - MAX_BYTES) // 12)]
        text = _json(error.reason, message + " ...")
    return text


def _json(reason: str, message: str) -> str:
    return json.dumps({"reason": reason, "message": message})


class SourceError(FetchError):
    """Exception for a model that does not exist in the source or has an invalid layout."""

    reason = "ModelSourceNotFound"


class StoreError(FetchError):
    """Exception for a model that cannot be downloaded."""

    reason = "ModelDownloadFailed"


class BackendError(ModelConfigError):
    """Exception for a model that uses or contains a backend that the site does not allow."""


class DocumentError(FetchError):
    """Exception for an overlay that cannot be parsed, because the operator and the fetcher have different versions."""

    reason = "OverlayInvalid"


def known_reason(text: str) -> str | None:
    """Return the reason and the remedy for an error of obstore; None if the error is unknown.

    Errors are recognised by words in their messages.
    """
    now = rfc3339(time.time())
    if untrusted := re.search(r"(?:InvalidCertificate\(\s*|certificate verify failed: )(\w+(?: [\w-]+)*)", text):
        if re.match(r"NotValidYet|Expired|certificate (has expired|is not yet valid)", untrusted[1]):
            return (
                f"the server's certificate isn't valid at this time ({untrusted[1]}): it is {now} on the pod's node. Renew the "
                "certificate, or correct the node's clock"
            )
        return (
            f"the server's certificate isn't trusted ({untrusted[1]}); for a private CA, put its certificate into the key ca.crt of "
            "the Secret that spec.model.source.credentials.secretName names, or for all models into the ConfigMap that the chart's "
            "downloads.caConfigMap names"
        )
    if "RequestTimeTooSkewed" in text:
        return (
            "the store rejects signed requests, because its clock differs from the one of the pod's node, where it is "
            f"{now}; correct the node's clock"
        )
    if "redirect without LOCATION" in text or "AuthorizationHeaderMalformed" in text:
        expected = re.search(r"expecting '([\w-]+)'", text)
        return (
            "the bucket is in another region than spec.model.source.region, which is us-east-1 if it is not set; set it to the "
            f"bucket's region, for example region: {expected[1] if expected else 'eu-central-1'}"
        )
    if "<Code>ExpiredToken</Code>" in text:
        return (
            "the temporary credentials have expired; write new ones to AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and "
            "AWS_SESSION_TOKEN of the Secret that spec.model.source.credentials.secretName names, or set "
            "spec.model.source.credentials.identity, which gets new ones for each download"
        )
    if wrong := re.search(r'Path "(.*)" contained empty path segment', text):
        return (
            f"the object {wrong[1]} can't be the path of a file, because two slashes follow each other; rename or delete it, or move "
            "the model into a folder of its own"
        )
    if "Content-Length Header missing" in text:
        return (
            "the server doesn't send the archive's size (Content-Length), because it packs the archive for each request; store "
            "the archive as a file, for example in a bucket or a package registry"
        )
    return None
