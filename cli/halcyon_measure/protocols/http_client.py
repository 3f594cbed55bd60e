"""HTTP client for KServe v2 with binary or JSON tensors, TensorFlow Serving's REST API, or a file as the plain body.

Triton's client library builds the bodies once, and aiohttp sends them. Triton's library would build the body again for
each request.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import aiohttp
import numpy as np
from aiohttp.abc import AbstractStreamWriter
from tritonclient import http as triton
from typing_extensions import override

from halcyon_measure.errors import TensorError
from halcyon_measure.inputs.payloads import Payload
from halcyon_measure.inputs.tensors import binary_body
from halcyon_measure.protocols.reply import Outcome, Prepared, Reply, of_http, single_line
from halcyon_measure.protocols.target import Target

MAX_RETRY_AFTER_S = 600.0
"""Maximum time in seconds that a server may request with Retry-After. Otherwise any proxy could delay a batch
forever."""
_NOT_IN_JSON = frozenset({"FP16", "BF16"})
"""Data types that Triton doesn't accept in JSON."""
_LENGTH = "Inference-Header-Content-Length"
_NO_OUTPUTS = re.compile(rb'"outputs"\s*:\s*\[\s*\]')


class HttpClient:
    """Client with one HTTP/1.1 connection for each request in flight."""

    def __init__(self, target: Target, *, clock: Callable[[], float] = time.monotonic, pod_header: str = "") -> None:
        self._target, self._clock, self._pod_header = target, clock, pod_header
        self._url = url(target)
        self._timeout = aiohttp.ClientTimeout(total=target.timeout_s)
        tls = target.tls.context() if target.encrypted else True
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls, keepalive_timeout=60),
            # A compressed answer would cost the server and this process time that isn't the model's.
            headers={"Accept-Encoding": "identity"} | dict(target.headers),
            timeout=self._timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    def encode(self, payload: Payload) -> Prepared:
        """Return the bytes of a request."""
        return encode(self._target, payload)

    async def send(self, request: Prepared, number: int) -> Reply:  # noqa: ARG002  # one pool serves all requests
        """Send a request and return the reply; never raise."""
        first = 0.0
        body_sent = _Body(request.body, self._clock)
        try:
            headers = {"Content-Type": self._content_type(request), **dict(request.headers)}
            if request.header_length is not None:
                headers[_LENGTH] = str(request.header_length)
            # A redirect isn't followed: what answers there, such as a login page, isn't the server to measure.
            async with self._session.post(
                self._url,
                data=body_sent,
                headers=headers,
                server_hostname=self._target.tls.server_name,
                allow_redirects=False,
            ) as response:
                first = self._clock()
                body = await response.read()
                outcome = of_http(response.status)
                pod = response.headers.get(self._pod_header, "") if self._pod_header else ""
                length = response.headers.get(_LENGTH)
                retry_after = response.headers.get("Retry-After", "")
                location = response.headers.get("Location", "")
        except TimeoutError:
            return Reply(
                Outcome.TIMED_OUT, f"no answer within {self._target.timeout_s:g} s", first or self._clock(), b"", ""
            )
        except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as error:
            error_text = single_line(f"{type(error).__name__}: {error}")
            return Reply(Outcome.DISCONNECTED, error_text, first or self._clock(), b"", "")
        header = int(length) if length and length.isascii() and length.isdecimal() else None
        if outcome is not Outcome.ANSWERED:
            message = f"{response.status}: {_message(body)}"
        elif message := problem(self._target, response.status, body, header=header, location=location):
            outcome = Outcome.ERROR
        return Reply(outcome, message, first, body, pod, header, body_sent.written_s, retry_after_s(retry_after))

    def _content_type(self, request: Prepared) -> str:
        if self._target.api == "post":
            return self._target.content_type
        return "application/octet-stream" if request.header_length is not None else "application/json"

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()


class _Body(aiohttp.BytesPayload):
    """Body of a request that records when its last byte was written to the socket."""

    def __init__(self, content: bytes, clock: Callable[[], float]) -> None:
        super().__init__(content)
        self._clock = clock
        self.written_s = math.nan

    @override
    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        await super().write_with_length(writer, content_length)
        self.written_s = self._clock()


def url(target: Target) -> str:
    """Return the URL to which requests are sent."""
    base = f"http{'s' if target.encrypted else ''}://{target.address}{target.path}"
    if target.api == "post":
        return base
    version = f"/versions/{quote(target.version)}" if target.version else ""
    if target.api == "tfserving":
        return f"{base}/v1/models/{quote(target.model, safe='')}{version}:predict"
    return f"{base}/v2/models/{quote(target.model, safe='')}{version}/infer"


def encode(target: Target, payload: Payload) -> Prepared:
    """Return the bytes of a request.

    Raises:
        TensorError: an input's data type or its bytes can't be represented in JSON.
    """
    if target.api == "post":
        return Prepared(next(iter(payload.tensors.values())).tobytes(), payload.rows)
    if target.api == "tfserving":
        return Prepared(json.dumps({"inputs": _json_tensors(payload)}).encode(), payload.rows)
    if target.encoding == "binary":
        body, length = binary_body(payload.tensors, target.inputs)
        return Prepared(body, payload.rows, length)
    kinds = {model_input.name: model_input.datatype for model_input in target.inputs}
    inputs = []
    for name, array in payload.tensors.items():
        if kinds[name] in _NOT_IN_JSON:
            raise TensorError(f"input {name} is of {kinds[name]}, which has no form in JSON; use --encoding binary")
        try:
            data = [value.decode() if isinstance(value, bytes) else value for value in array.ravel().tolist()]
        except UnicodeDecodeError:
            raise TensorError(
                f"input {name} has bytes that are no UTF-8, as JSON needs; use --encoding binary"
            ) from None
        inputs.append({"name": name, "shape": list(array.shape), "datatype": kinds[name], "data": data})
    return Prepared(json.dumps({"inputs": inputs}).encode(), payload.rows)


def retry_after_s(text: str) -> float:
    """Return the seconds in a `Retry-After` header, at most `MAX_RETRY_AFTER_S`; 0 if it has none, as in a date."""
    return min(float(text), MAX_RETRY_AFTER_S) if text.isdecimal() else 0.0


def problem(target: Target, status: int, body: bytes, *, header: int | None = None, location: str = "") -> str:
    """Return the reason why a response isn't a valid answer, although its status is no error; empty if it is one.

    Proxies respond with redirects and pages, for example for a login, and some servers send an error with the status
    200.

    Args:
        target: server and protocol.
        status: HTTP status, below 400.
        body: body of the response.
        header: length of the JSON before the binary outputs; None if there are none.
        location: header `Location` of a redirect.
    """
    if status >= 300:
        return single_line(f"{status}: a redirect to {location or 'no location'}; give the URL of the server itself")
    if target.api == "post":
        return ""
    if header is not None and header > len(body):
        return f"{status}: cut off: {_LENGTH} is {header}, and the body has {len(body)} bytes"
    document = body if header is None else body[:header]
    is_empty = bool(target.outputs) and target.api == "kserve" and _NO_OUTPUTS.search(document) is not None
    if (b'"outputs"' in document and not is_empty) or (target.api == "tfserving" and b'"predictions"' in document):
        return ""
    return single_line(f"{status}: no outputs in the answer: {_message(document)}")


def outputs(target: Target, reply: Reply) -> dict[str, Any]:
    """Return the output tensors of an answer by name; empty for a plain POST."""
    if target.api == "post":
        return {}
    if target.api == "tfserving":
        tensors = json.loads(reply.body)["outputs"]
        return {
            name: np.array(value) for name, value in (tensors.items() if isinstance(tensors, dict) else [("", tensors)])
        }
    result = triton.InferenceServerClient.parse_response_body(reply.body, header_length=reply.header_length)
    return {output["name"]: result.as_numpy(output["name"]) for output in result.get_response()["outputs"]}


def _json_tensors(payload: Payload) -> dict[str, Any]:
    return {name: _plain(array.tolist()) for name, array in payload.tensors.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _message(body: bytes) -> str:
    """Return the message of an error response: the error in its JSON, or else the beginning of the body."""
    try:
        document = json.loads(body)
        return single_line(str(document["error"]))
    except (ValueError, KeyError, TypeError):
        return single_line(body[:160].decode(errors="replace")) or "no message"
