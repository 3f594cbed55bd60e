"""The wire format of the API server: apply bodies, lines of a watch, Status documents."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp

from halcyon.kube import errors

_NOT_PLAIN_IN_YAML = re.compile("[\\x7f-\\uffff]")


def as_yaml(obj: dict[str, Any]) -> bytes:
    """Return an object as JSON that is also valid YAML, because an apply body is read as YAML.

    JSON in ASCII writes a character above U+FFFF as two escapes, and YAML has no escape for half a character. YAML, in turn, requires
    an escape for some characters below. So those above are written as they are, and the others are escaped.
    """
    text = json.dumps(obj, ensure_ascii=False)
    return _NOT_PLAIN_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


async def lines(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a response, of any length: an object may be larger than the stream's buffer."""
    rest = bytearray()
    async for chunk in response.content.iter_any():
        rest += chunk
        while (end := rest.find(b"\n")) >= 0:
            line = bytes(rest[:end])
            del rest[: end + 1]
            if line:
                yield line


def status(detail: bytes) -> dict[str, Any]:
    """Return the Status document of an error response; if it isn't one, a dict with its text as the message."""
    try:
        parsed = json.loads(detail)
    except ValueError:
        return {"message": detail[:200].decode(errors="replace")}
    return parsed if isinstance(parsed, dict) else {"message": str(parsed)}


def error(doing: str, status: int, detail: dict[str, Any], retry_after: str | None = None) -> errors.ApiError:
    """Return the error for an HTTP status and its Status document; `retry_after` is the value of the header."""
    wait = (detail.get("details") or {}).get("retryAfterSeconds") or retry_after
    return errors.of_status(
        status,
        f"{doing}: {detail.get('message') or detail.get('reason') or status}",
        reason=str(detail.get("reason") or ""),
        retry_after_s=float(wait) if wait and str(wait).isdigit() else None,
    )
