"""Minimal Kubernetes API client, used by the agent to watch a ConfigMap and the EndpointSlices.

It is used instead of the kubernetes package, whose import alone takes 55 MiB, more than the agent's memory limit of 48
MiB. It lists and watches with aiohttp and the token of the pod's ServiceAccount. The token rotates, so it is read for
each request. Out of scope: the meaning of the objects.

The client lists the objects first, and then watches their changes. If the stream ends, the watch is resumed. After an
error, the objects are listed again. While the API server is unavailable, requests are retried, and the last snapshot
stays in use.
"""

# list -> snapshot -> watch from its resourceVersion -> changed snapshot -> ...
#   410, an ERROR event, or an unreadable line:          list again
#   the stream ends, or is silent for too long:          resume the watch from the last resourceVersion seen
#   the API server is unavailable:                       retry after 0.5 to 15 s; the last snapshot stays in force

from __future__ import annotations

import asyncio
import json
import os
import random
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import aiohttp

from halcyon.api.authorities import accept_as_they_are
from halcyon.triton.json_log import log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_T = TypeVar("_T")

WATCH_TIMEOUT_S = 290
"""Duration of a watch that the agent requests from the API server (`timeoutSeconds`), in seconds."""
SILENCE_TIMEOUT_S = 70.0
"""Time without a received byte after which a watch counts as dead, in seconds. Bookmarks arrive about once a minute."""
REQUEST_TIMEOUT_S = 10.0
_MIN_PAUSE_S = 0.5
_MAX_PAUSE_S = 15.0
_MIN_STEADY_S = 10.0
_MAX_LINE_BYTES = 4 * 2**20
_MAX_ERROR_BYTES = 1000


class KubeError(OSError):
    """Error raised if the API server is unavailable or rejects a request. The message names request and response."""


class AccessDenied(KubeError):  # noqa: N818 - what it is, as in the condition
    """Error raised if a request lacks a permission. The message is the API server's, unchanged."""


class _VersionTooOld(Exception):  # noqa: N818 - a turn of the loop, no error
    """Error raised if the resourceVersion of a watch is too old, so that the objects must be listed again."""


@dataclass(frozen=True)
class ApiServerAccess:
    """Address of the API server, and the credentials with which the agent accesses it."""

    base_url: str
    token_path: Path | None = None
    ca_path: Path | None = None

    @classmethod
    def in_cluster(cls, secrets: Path) -> ApiServerAccess:
        """Return the API server's address, and the pod's credentials `token` and `ca.crt` in the folder `secrets`.

        Raises:
            KubeError: the process does not run in a pod.
        """
        try:
            host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        except KeyError as error:
            raise KubeError(f"{error} is not set: the agent runs in a pod") from error
        host = f"[{host}]" if ":" in host else host
        return cls(f"https://{host}:{port}", secrets / "token", secrets / "ca.crt")

    def headers(self) -> dict[str, str]:
        """Return the HTTP headers with the current token of the ServiceAccount."""
        if self.token_path is None:
            return {}
        return {"Authorization": f"Bearer {self.token_path.read_text().strip()}"}

    def tls(self) -> ssl.SSLContext | bool:
        """Return a TLS context that trusts only the CA in `ca_path`."""
        if self.ca_path is None:
            return True
        return accept_as_they_are(ssl.create_default_context(cafile=str(self.ca_path)))


class Watch(Generic[_T]):
    """Watch of one collection of the Kubernetes API.

    To save memory, it keeps only the result of `project` for each object.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        access: ApiServerAccess,
        path: str,
        *,
        params: Mapping[str, str],
        project: Callable[[Mapping[str, Any]], _T],
        on_change: Callable[[Mapping[str, _T]], None],
        on_denied: Callable[[str], None] = lambda _: None,
        silence_s: float = SILENCE_TIMEOUT_S,
        first_pause_s: float = _MIN_PAUSE_S,
    ) -> None:
        """Create the watch without starting it.

        Args:
            session: HTTP session; the caller closes it.
            access: address and credentials of the API server.
            path: URL path of the collection, for example `/api/v1/namespaces/default/configmaps`.
            params: query parameters, for example label selectors.
            project: converts an object to the value to keep. If it raises an error, the object is skipped.
            on_change: called with all kept values by object name, after the objects are listed and after each change.
            on_denied: called with the API server's message if a permission is missing, and with an empty string once it
                is granted.
            silence_s: time without a received byte after which the watch counts as dead, in seconds.
            first_pause_s: pause after the first failure, in seconds; each further failure doubles it.
        """
        self._session = session
        self._access = access
        self._path = path
        self._params = dict(params)
        self._project = project
        self._on_change = on_change
        self._on_denied = on_denied
        self._silence_s = silence_s
        self._first_pause_s = first_pause_s
        self._objects: dict[str, _T] = {}
        self._is_logged = False
        self._denials: dict[str, str] = {}
        self._unreadable: dict[str, str] = {}
        self._tls: tuple[float, ssl.SSLContext | bool] | None = None

    async def run(self) -> None:
        """List the collection and watch it until cancelled."""
        # An earlier watch of the collection may have ended while a permission was missing.
        self._on_denied("")
        version: str | None = None
        pause_s = 0.0
        while True:
            try:
                if version is None:
                    version = await self._list()
                began = asyncio.get_running_loop().time()
                version, has_events = await self._watch(version)
                # If each watch ends at once, the pauses must grow, so that this does not become a busy loop.
                steady = has_events or asyncio.get_running_loop().time() - began > _MIN_STEADY_S
                pause_s = 0.0 if steady else self._next_pause_s(pause_s)
            except _VersionTooOld:
                version = None
                pause_s = self._next_pause_s(pause_s)
            except AccessDenied as error:
                # Without the permission to watch, list repeatedly: changes then arrive late, but they arrive.
                version = None
                pause_s = self._next_pause_s(pause_s)
                self._log_failure("the API server denied access; the last known state stays in use", error)
            except (KubeError, aiohttp.ClientError, OSError) as error:
                pause_s = self._next_pause_s(pause_s)
                self._log_failure("the API server does not respond; the last known state stays in use", error)
            if pause_s:
                await asyncio.sleep(random.uniform(pause_s / 2, pause_s))  # noqa: S311 - spreads load, keeps no secret

    def _log_failure(self, message: str, error: Exception) -> None:
        """Log a failure, but only once per outage."""
        if not self._is_logged:
            log("warning", message, path=self._path, error=str(error))
            self._is_logged = True

    def _recovered(self, verb: str) -> None:
        if self._denials.pop(verb, None) is not None:
            self._on_denied("; ".join(self._denials.values()))
        if self._is_logged and not self._denials:
            log("info", "the API server responds again", path=self._path)
            self._is_logged = False

    def _deny(self, verb: str, text: str) -> None:
        if self._denials.get(verb) != text:
            self._denials[verb] = text
            self._on_denied("; ".join(self._denials.values()))

    async def _list(self) -> str:
        timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
        async with self._get(self._params, timeout) as response:
            await self._check(response, "list")
            document = _load(await response.read())
        objects: dict[str, _T] = {}
        for item in document.get("items") or ():
            objects |= self._read(item)
        self._objects = objects
        self._on_change(self._objects)
        return str(document["metadata"]["resourceVersion"])

    async def _watch(self, version: str) -> tuple[str, bool]:
        params = {
            **self._params,
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_TIMEOUT_S),
        }
        has_events = False
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_TIMEOUT_S, sock_read=self._silence_s)
        try:
            async with self._get(params, timeout) as response:
                await self._check(response, "watch")
                buffer = bytearray()
                async for chunk in response.content.iter_any():
                    buffer += chunk
                    while (end := buffer.find(b"\n")) >= 0:
                        line = bytes(buffer[:end])
                        del buffer[: end + 1]
                        if line.strip():
                            version = self._event(_load(line))
                            has_events = True
                    if len(buffer) > _MAX_LINE_BYTES:
                        raise _VersionTooOld
        except TimeoutError:
            log("info", "a watch received nothing for too long; it is reopened", path=self._path)
        except aiohttp.ClientPayloadError:
            pass  # the API server closed the connection within an event; the caller resumes the watch
        return version, has_events

    def _event(self, event: Mapping[str, Any]) -> str:
        kind, item = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            if item.get("code") != 410:
                error = KubeError(str(item.get("message", item)))
                self._log_failure("the API server ended a watch with an error; the objects are listed again", error)
            raise _VersionTooOld
        meta = item["metadata"]
        if kind in {"ADDED", "MODIFIED"}:
            others = {name: value for name, value in self._objects.items() if name != meta["name"]}
            self._objects = others | self._read(item)
            self._on_change(self._objects)
        elif kind == "DELETED":
            self._objects = {name: value for name, value in self._objects.items() if name != meta["name"]}
            self._on_change(self._objects)
        return str(meta["resourceVersion"])

    def _read(self, item: Mapping[str, Any]) -> dict[str, _T]:
        """Return the value to keep for an object, by the object's name.

        If `project` fails, log the failure once and return an empty mapping.
        """
        name = item["metadata"]["name"]
        try:
            value = self._project(item)
        except Exception as error:  # noqa: BLE001 - one unexpected object must not end the watch of the others
            if self._unreadable.get(name) != repr(error):
                self._unreadable[name] = repr(error)
                log(
                    "warning",
                    "an object has an unexpected form; it is skipped",
                    object=name,
                    error=repr(error),
                )
            return {}
        self._unreadable.pop(name, None)
        return {name: value}

    def _get(self, params: Mapping[str, str], timeout: aiohttp.ClientTimeout) -> Any:
        return self._session.get(
            self._access.base_url + self._path,
            params=params,
            headers=self._access.headers(),
            ssl=self._context(),
            timeout=timeout,
            allow_redirects=False,
        )

    def _context(self) -> ssl.SSLContext | bool:
        # Creating a context takes 10 ms, and the CA file changes about once in ten years. So create one only if the file changed.
        changed = self._access.ca_path.stat().st_mtime if self._access.ca_path else 0.0
        if self._tls is None or self._tls[0] != changed:
            self._tls = (changed, self._access.tls())
        return self._tls[1]

    def _next_pause_s(self, pause_s: float) -> float:
        return min(max(2 * pause_s, self._first_pause_s), _MAX_PAUSE_S)

    async def _check(self, response: aiohttp.ClientResponse, verb: str) -> None:
        if response.status == 410:
            raise _VersionTooOld
        if response.status == 200:
            self._recovered(verb)
            return
        body = (await response.content.read(_MAX_ERROR_BYTES)).decode(errors="replace")
        if response.status == 403:
            text = _message(body)
            self._deny(verb, text)
            raise AccessDenied(text)
        raise KubeError(f"GET {self._path} returned {response.status}: {body}")


def _message(body: str) -> str:
    """Return the message of a response body that is a Status object; otherwise return the body unchanged."""
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body


def _load(text: bytes) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise _VersionTooOld from error
    if not isinstance(document, dict) or ("items" not in document and "object" not in document):
        raise KubeError(f"the response is neither a list nor an event: {text[:200]!r}")
    return document
