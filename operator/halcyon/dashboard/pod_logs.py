"""Last log lines of a pod's container, read with the token of the signed-in user.

The operator itself may not read logs. The API server checks the user's own permission (`get` on `pods/log`) at each
request. The connection uses no other credentials, because a client certificate of the operator's kubeconfig would take
precedence over the token.
"""

from __future__ import annotations

import ssl
from urllib.parse import quote, urlencode

import aiohttp
import orjson

from halcyon.api.authorities import accept_as_they_are

MAX_LINES = 100
MAX_BYTES = 64 * 1024
TIMEOUT_S = 10.0


class LogsUnavailable(Exception):  # noqa: N818  # an answer, not a fault
    """The API server returned no log. The message of the exception gives the server's reason."""


class PodLogs:
    """Reader of logs from one API server."""

    def __init__(self, url: str, ca_file: str | None) -> None:
        """Create the reader for the API server at `url`.

        `ca_file` is the path of a PEM file with the server's CA; None to trust the system's CAs.
        """
        self._url, self._ca_file = url, ca_file

    async def tail(self, token: str, *, namespace: str, pod: str, container: str, previous: bool) -> str:
        """Return the last `MAX_LINES` lines of a container's log, but at most `MAX_BYTES` bytes.

        If `previous` is true, return the log from before the container's last restart.

        Raises:
            LogsUnavailable: the user has no permission, there is no such log, or the API server can't be reached.
        """
        # Without limitBytes, with which the API server would leave out the newest of these lines.
        query = {"container": container, "tailLines": MAX_LINES}
        query |= {"previous": "true"} if previous else {}
        url = f"{self._url}/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/log?{urlencode(query)}"
        tls = accept_as_they_are(ssl.create_default_context(cafile=self._ca_file))
        limit = aiohttp.ClientTimeout(total=TIMEOUT_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=limit, headers={"Authorization": f"Bearer {token}"}) as session,
                session.get(url, ssl=tls, allow_redirects=False) as response,
            ):
                body = await _last(response.content)
                if response.status != 200:
                    raise LogsUnavailable(_reason(body) or f"the API server answered {response.status}")
                return body.decode(errors="replace")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise LogsUnavailable(f"the API server can't be reached: {type(error).__name__}") from error


async def _last(content: aiohttp.StreamReader) -> bytes:
    """Return the last `MAX_BYTES` bytes of a response, without the incomplete line at the beginning."""
    tail = bytearray()
    is_cut = False
    async for part in content.iter_any():
        tail += part
        if len(tail) > MAX_BYTES:
            # One byte more shows whether the first line is complete.
            is_cut = True
            del tail[: len(tail) - MAX_BYTES - 1]
    return bytes(tail[tail.find(b"\n") + 1 :] if is_cut else tail)


def _reason(body: bytes) -> str:
    try:
        return str(orjson.loads(body)["message"])[:500]
    except (ValueError, TypeError, KeyError):
        return ""
