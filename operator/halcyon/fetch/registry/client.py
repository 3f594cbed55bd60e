"""HTTP client of a registry: JSON documents and files, through the proxy of the download.

It follows redirects, because registries store large files elsewhere. The header `Authorization` is sent only to the
registry itself; the URL of a redirect to another server contains its own signature.
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
import threading
import urllib.error
import urllib.request
from email.message import Message
from typing import IO, Any, cast
from urllib.parse import urlsplit

from halcyon.api.authorities import accept_as_they_are
from halcyon.fetch.registry.errors import RegistryError, RegistryFailure, TransientError

_TIMEOUT_S = 30.0
"""Maximum time in seconds for connecting, and for a single read."""
MAX_RETRIES = 4
"""Maximum number of successive retries without a received byte."""
RETRY_WAIT_S = 1.0
"""Time before the first retry, in seconds. It doubles with each further retry."""
MAX_WAIT_S = 300.0
"""Maximum wait before a retry that the registry can request, in seconds. Hugging Face counts requests in windows of
five minutes."""
_MAX_DOCUMENT_BYTES = 64 * 1024 * 1024
_MAX_SHOWN = 400
_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
"""Status codes after which a request is retried."""


class RegistryClient:
    """HTTP client of one model registry."""

    def __init__(self, server: str, authorization: str | None, proxy: str, ca: str | None) -> None:
        """Create a client.

        Args:
            server: URL of the registry, without a path.
            authorization: value of the header `Authorization`; None for requests without credentials.
            proxy: URL of the proxy for all requests.
            ca: additional CA certificates (PEM); None if there are none.
        """
        self.server = server.rstrip("/")
        self._authorization = authorization
        context = ssl.create_default_context()
        if ca is not None:
            accept_as_they_are(context).load_verify_locations(cadata=ca)
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({"http": proxy, "https": proxy}),
            urllib.request.HTTPSHandler(context=context),
            _Redirects(),
        )

    @property
    def has_credentials(self) -> bool:
        """Whether the client's requests contain credentials."""
        return self._authorization is not None

    def document(self, path: str) -> tuple[Any, str | None]:
        """Return the JSON document at a path with a query, and the path of the next page; None on the last page.

        Raises:
            RegistryError: the registry denies the request.
            RegistryFailure: the registry can't be reached, or its response is not JSON.
        """
        failures = 0
        while True:
            try:
                with self.open(path) as answer:
                    return json.loads(_content(answer)), _next_page(answer.headers.get("Link", ""))
            except (TransientError, OSError, http.client.HTTPException) as error:
                failures += 1
                pause(error, failures, f"{self.server}{path}")
            except ValueError as error:
                raise RegistryFailure(
                    f"{self.server}{path} did not answer with JSON; is endpoint a registry's?"
                ) from error

    def open(self, path: str, begin: int = 0) -> http.client.HTTPResponse:
        """Return the response for a path, from the byte `begin` on if the server supports it (status 206).

        Raises:
            RegistryError: the registry denies the request.
            TransientError: the request may succeed later.
            RegistryFailure: the server's certificate is not trusted.
            OSError: the server can't be reached.
        """
        request = urllib.request.Request(f"{self.server}{path}")  # noqa: S310  # the scheme is checked in the spec
        if self._authorization is not None:
            request.add_header("Authorization", self._authorization)
        if begin:
            request.add_header("Range", f"bytes={begin}-")
        try:
            return cast("http.client.HTTPResponse", self._opener.open(request, timeout=_TIMEOUT_S))
        except urllib.error.HTTPError as error:
            with error:
                raise self._denied(error) from error
        except urllib.error.URLError as error:
            reason = error.reason
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise RegistryFailure(f"{self.server}: {reason}") from error
            raise OSError(str(getattr(reason, "strerror", None) or reason)) from error

    def _denied(self, error: urllib.error.HTTPError) -> Exception:
        code, message = error.headers.get("X-Error-Code", ""), error.headers.get("X-Error-Message", "")
        text = error.read(_MAX_SHOWN * 4).decode(errors="replace")
        try:
            document = json.loads(text)
            code = code or str(document.get("error_code", ""))
            message = message or str(document.get("message") or document.get("error") or "")
        except (ValueError, AttributeError):
            message = message or text
        for secret in (self._authorization or "").split()[1:]:
            message = message.replace(secret, "***")
        message = " ".join(message.split())[:_MAX_SHOWN] or error.reason
        if error.code in _TRANSIENT:
            return TransientError(
                f"status {error.code}: {message}", wait_s=_requested_wait_s(error.code, error.headers)
            )
        return RegistryError(error.code, code, message)


def _content(answer: http.client.HTTPResponse) -> bytes:
    """Return the body of a response, at most `_MAX_DOCUMENT_BYTES` of it.

    Raises:
        TransientError: the connection ended before the body was complete. `read` alone does not detect this.
    """
    content = answer.read(_MAX_DOCUMENT_BYTES)
    if len(content) < min(int(answer.headers.get("Content-Length") or 0), _MAX_DOCUMENT_BYTES):
        raise TransientError(f"the response ended after {len(content)} bytes")
    return content


def pause(error: Exception, failures: int, url: str, stopped: threading.Event | None = None) -> None:
    """Wait before the next attempt, or until `stopped` is set.

    The wait doubles with each successive failure, and is longer if the registry requests it.

    Raises:
        RegistryFailure: there were too many failures.
    """
    if failures > MAX_RETRIES:
        raise RegistryFailure(f"{url}: {str(error) or type(error).__name__}, after {failures} attempts") from error
    requested_s = error.wait_s if isinstance(error, TransientError) else 0.0
    (stopped or threading.Event()).wait(max(RETRY_WAIT_S * 2 ** (failures - 1), min(requested_s, MAX_WAIT_S)))


def _requested_wait_s(status: int, headers: Message) -> float:
    """Return the seconds that a response requests before the next request; 0 if it requests none.

    The header `Retry-After` contains this time. Hugging Face sends the header `RateLimit` instead, whose parameter `t`
    is the time until its limit is reset. It applies only to the status 429 (too many requests).
    """
    if (after := headers.get("Retry-After", "").strip()).isdecimal():
        return float(after)
    limit = re.search(r";\s*t=(\d{1,9})", headers.get("RateLimit", "")) if status == 429 else None
    return float(limit[1]) if limit else 0.0


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Handler of redirects that sends no credentials to other servers."""

    def redirect_request(  # noqa: PLR0917  # the library's signature
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        """Return the request that follows a redirect to the URL `newurl`."""
        following = super().redirect_request(req, fp, code, msg, cast("Any", headers), newurl)
        if following is not None and urlsplit(newurl)[:2] != urlsplit(req.full_url)[:2]:
            following.remove_header("Authorization")
        return following


def _next_page(links: str) -> str | None:
    """Return the path and query of the next page, from the header `Link` (RFC 8288).

    The server in this URL is ignored, because a mirror may name the original server.
    """
    for link in links.split(","):
        target, _, parameters = link.strip().partition(">")
        if 'rel="next"' in parameters:
            parts = urlsplit(target.removeprefix("<"))
            return f"{parts.path}?{parts.query}"
    return None
