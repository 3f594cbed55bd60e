"""Wire format of the API server: apply bodies, watch lines and Status documents."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp

from halcyon.kube import errors

_NOT_PLAIN_IN_YAML = re.compile("[\\x7f-\\uffff]")
_NO_OBJECT_S_VERSION = "1"
"""Resource version that no object can have, because it is the version of the API server's store before its first
write."""


def as_yaml(obj: dict[str, Any]) -> bytes:
    """Return the object as JSON that is also valid YAML, because the API server parses the body of an apply as YAML.

    ASCII JSON writes a character above U+FFFF as two escapes (a surrogate pair), which YAML does not support. YAML
    requires an escape for some characters up to U+FFFF. Therefore characters above U+FFFF are written unescaped, and
    other non-ASCII characters are escaped.
    """
    text = json.dumps(obj, ensure_ascii=False)
    return _NOT_PLAIN_IN_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode()


def creating(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the body of an apply that only creates an object, and fails with `Conflicted` if one of this name exists.

    It has a resource version that no object has. The API server checks the version only if the object exists. A POST is
    no substitute: later applies would not own its fields, and could not remove a field by omitting it.
    """
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": _NO_OBJECT_S_VERSION}}


def changing(obj: dict[str, Any], seen: dict[str, Any], *, versioned: bool) -> dict[str, Any]:
    """Return the body of an apply that updates the object `seen`, but never creates it.

    The request fails with `Conflicted` if the object was deleted. If `versioned` is true, it also fails if the object
    has been changed since `seen` was read.
    """
    meta = {**obj["metadata"], "uid": seen["metadata"]["uid"]}
    if versioned:
        meta["resourceVersion"] = seen["metadata"]["resourceVersion"]
    return {**obj, "metadata": meta}


async def lines(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a response. A line may be of any length, because an object can be larger than the stream's buffer."""
    buffer = bytearray()
    async for chunk in response.content.iter_any():
        buffer += chunk
        while (end := buffer.find(b"\n")) >= 0:
            line = bytes(buffer[:end])
            del buffer[: end + 1]
            if line:
                yield line


def status(detail: bytes) -> dict[str, Any]:
    """Return the Status document in the body of an error response.

    If the body is not a Status document, return a dict with the body as `message`.
    """
    try:
        parsed = json.loads(detail)
    except ValueError:
        return {"message": detail[:200].decode(errors="replace")}
    return parsed if isinstance(parsed, dict) else {"message": str(parsed)}


def error(operation: str, status: int, detail: dict[str, Any], retry_after: str | None = None) -> errors.ApiError:
    """Return the exception for an HTTP error response.

    `operation` is the name of the failed operation, and `detail` is the Status document. `retry_after` is the value of
    the Retry-After header.
    """
    details = detail.get("details")  # of any type, if a gateway has answered
    wait = (details.get("retryAfterSeconds") if isinstance(details, dict) else None) or retry_after
    return errors.of_status(
        status,
        f"{operation}: {detail.get('message') or detail.get('reason') or status}",
        reason=str(detail.get("reason") or ""),
        retry_after_s=float(wait) if wait and str(wait).isdigit() else None,
    )
