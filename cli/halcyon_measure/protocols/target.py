"""Address, protocol and credentials of the server to measure, as plain values that are passed to worker processes."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, get_args
from urllib.parse import SplitResult, quote, urlsplit

from halcyon_measure.errors import TargetError
from halcyon_measure.inputs.tensors import ModelInput

Api = Literal["kserve", "tfserving", "post"]
Transport = Literal["http", "grpc"]
Encoding = Literal["binary", "json", "raw", "typed"]
SharedMemory = Literal["none", "system"]
_PATH_CHARACTERS = "/%:@!$&'()*+,;=~"
"""Characters in the path of a URL that are not escaped, besides letters, digits and `-._`."""
APIS: tuple[Api, ...] = get_args(Api)
_DEFAULT_PORTS = {"http": 80, "https": 443, "grpc": 8001, "grpcs": 443}
_ENCODINGS: Mapping[tuple[Api, Transport], tuple[Encoding, ...]] = {
    ("kserve", "http"): ("binary", "json"),
    ("kserve", "grpc"): ("raw", "typed"),
    ("tfserving", "http"): ("json",),
    ("post", "http"): ("raw",),
}


@dataclass(frozen=True, kw_only=True)
class Tls:
    """Paths of the files for a TLS connection."""

    ca: str | None = None
    """Path of the certificates of trusted authorities; None for the system's authorities."""
    certificate: str | None = None
    key: str | None = None
    """Path of the private key for the client's `certificate`. Both are needed if the server requires client
    authentication."""
    server_name: str | None = None
    """Name that the server's certificate must contain; None for the host of the URL."""

    def check(self) -> Self:
        """Check that these files can be read, and return this object.

        Raises:
            TargetError: a file can't be read, or only one of certificate and key is given.
        """
        if (self.certificate is None) != (self.key is None):
            raise TargetError("a client certificate needs both files; for example --cert client.crt --key client.key")
        for path in (self.ca, self.certificate, self.key):
            if path is not None and not os.access(path, os.R_OK):
                raise TargetError(f"{path}: can't read it; it must be a file in PEM format")
        self.context()
        return self

    def context(self) -> ssl.SSLContext:
        """Return the TLS context for an HTTP client.

        Raises:
            TargetError: a file isn't a certificate or a key in PEM format.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.ca is not None:  # a site's own CA may lack extensions that Python 3.13 requires
                context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ValueError) as error:
            files = ", ".join(path for path in (self.ca, self.certificate, self.key) if path)
            raise TargetError(f"{files}: not a certificate and key in PEM format: {error}") from None
        return context


@dataclass(frozen=True, kw_only=True)
class Target:
    """Model on a server, and the way in which requests are sent to it."""

    host: str
    port: int
    path: str = ""
    """Path prefix of the API; for a plain POST, the complete path."""
    encrypted: bool = False
    tls: Tls = Tls()
    api: Api = "kserve"
    transport: Transport = "http"
    encoding: Encoding = "binary"
    model: str = ""
    version: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    """HTTP headers, or gRPC metadata, for example an API key."""
    timeout_s: float = 30.0
    channels: int = 4
    """Number of gRPC connections, which requests use in turn."""
    content_type: str = "application/octet-stream"
    """Content type of a plain POST."""
    inputs: tuple[ModelInput, ...] = ()
    outputs: tuple[ModelInput, ...] = ()
    """Outputs of the model, if the server's metadata has them."""
    shared_memory: SharedMemory = "none"
    """Kind of memory shared by client and server for tensors; `none` if requests contain the tensors."""

    @property
    def address(self) -> str:
        """Host and port, joined by a colon."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """URL of the server without the paths of the API."""
        scheme = ("grpc" if self.transport == "grpc" else "http") + ("s" if self.encrypted else "")
        return f"{scheme}://{self.address}{self.path}"

    def to_dict(self) -> dict[str, Any]:
        """Return the target in its JSON form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Parse a target from the JSON form that `to_dict` returns."""
        tensors = {
            part: tuple(ModelInput(**{**entry, "shape": tuple(entry["shape"])}) for entry in fields[part])
            for part in ("inputs", "outputs")
        }
        headers = tuple((name, value) for name, value in fields["headers"])
        return cls(**{**fields, **tensors, "tls": Tls(**fields["tls"]), "headers": headers})


def parse(url: str, *, api: Api, transport: Transport | None, encoding: Encoding | None, **others: Any) -> Target:
    """Return the target for a URL such as http://host:8000, grpc://host:8001 or host:8001.

    Raises:
        TargetError: the URL, or the combination of API, protocol and encoding, is invalid.
    """
    text = url if "://" in url else f"{transport or 'http'}://{url}"
    parts = _parts(text, url)
    by_scheme: Transport = "grpc" if parts.scheme.startswith("grpc") else "http"
    if transport is not None and transport != by_scheme:
        raise TargetError(f"protocol is {transport}, but the URL {url} is one of {by_scheme}; leave one of them out")
    encodings = _ENCODINGS.get((api, by_scheme))
    if encodings is None:
        raise TargetError(f"api {api} has no form over {by_scheme}; use http")
    if encoding is not None and encoding not in encodings:
        raise TargetError(f"encoding is {encoding}; with api {api} over {by_scheme} it is {' or '.join(encodings)}")
    path = quote(parts.path, safe=_PATH_CHARACTERS)
    query = f"?{quote(parts.query, safe=_PATH_CHARACTERS + '?')}" if parts.query else ""
    if query and api != "post":
        raise TargetError(f"url is {url}; with api {api} it can't have a query, for example http://127.0.0.1:8000")
    return Target(
        host=str(parts.hostname),
        port=parts.port or _DEFAULT_PORTS[parts.scheme],
        path=path.rstrip("/") if api != "post" else (path or "/") + query,
        encrypted=parts.scheme.endswith("s"),
        api=api,
        transport=by_scheme,
        encoding=encoding or encodings[0],
        **others,
    )


def _parts(text: str, url: str) -> SplitResult:
    """Return the parts of a URL.

    Raises:
        TargetError: the URL isn't an HTTP or gRPC URL, or its host, port or credentials are invalid.
    """
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
        if not host.replace(":", "").isascii() or "." in host:
            host.encode("idna")
    except UnicodeError:
        raise TargetError(
            f"url is {url}; each part of its host name between dots must have 1 to 63 valid characters, for example "
            "http://models.example.com:8000"
        ) from None
    except ValueError as error:
        raise TargetError(f"url is {url}: {error}; for example http://127.0.0.1:8000 or http://[::1]:8000") from None
    try:
        is_port = parts.port is None or parts.port > 0
    except ValueError:
        is_port = False
    if not is_port:
        raise TargetError(f"url is {url}; its port must be 1 to 65535, for example http://127.0.0.1:8000")
    if parts.scheme not in _DEFAULT_PORTS or not host:
        raise TargetError(
            f"url is {url}; it must be a URL of HTTP or gRPC, for example http://127.0.0.1:8000 or grpc://127.0.0.1:8001"
        )
    if "@" in parts.netloc:
        shown = text.replace(parts.netloc.rpartition("@")[0], "USER:PASSWORD")
        raise TargetError(
            f"url is {shown}; credentials in it aren't sent, for example --header 'Authorization: Basic ...', or --api-key-file FILE"
        )
    return parts
