"""Options for the server and its protocol."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from halcyon_cli.arguments.options import DURATION
from halcyon_cli.bench.options.group import option_group
from halcyon_cli.errors import InputError
from halcyon_measure.errors import SettingError
from halcyon_measure.protocols.api_key import authorization

if TYPE_CHECKING:
    from halcyon_measure.protocols.target import Api, Encoding, SharedMemory, Target

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""Pattern of a header name, as in RFC 9110."""
_ENCODINGS = ("binary", "json", "raw", "typed")


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Values of the options for the server."""

    url: str | None = None
    model: str = ""
    version: str = ""
    api: Api = "kserve"
    encoding: Encoding | None = None
    shared_memory: SharedMemory = "none"
    content_type: str = "application/octet-stream"
    headers: Sequence[str] = ()
    api_key_file: Path | None = None
    ca: str | None = None
    server_name: str | None = None
    cert: str | None = None
    key: str | None = None
    request_timeout: float = 30.0
    channels: int = 4
    pod_header: str = ""

    def target(self) -> Target:
        """Return the server and the model to measure.

        Raises:
            MeasureError, InputError: an option is invalid, or two options contradict each other.
        """
        from halcyon_measure.protocols import target  # noqa: PLC0415
        from halcyon_measure.protocols.target import Tls  # noqa: PLC0415

        if self.url is None:
            raise InputError(
                "it needs a ModelDeployment or a server; for example halcyon bench digits, or --url http://localhost:8000 --model digits"
            )
        if self.api != "post" and not self.model:
            raise InputError("--model is needed with this API; for example --model digits")
        return target.parse(
            self.url,
            api=self.api,
            transport=None,
            encoding=self.encoding,
            shared_memory=self.shared_memory,
            model=self.model,
            version=self.version,
            tls=Tls(ca=self.ca, certificate=self.cert, key=self.key, server_name=self.server_name),
            headers=request_headers(self.headers, self.api_key_file),
            timeout_s=self.request_timeout,
            channels=self.channels,
            content_type=self.content_type,
        )


server_options = option_group(
    "server",
    ServerOptions,
    click.option("--url", metavar="URL", help="Server: http://, https://, grpc:// or grpcs://, host and port."),
    click.option("--model", default="", metavar="NAME", help="Name of the model on the server."),
    click.option("--version", default="", metavar="N", help="Version of the model. Default: chosen by the server."),
    click.option(
        "--api",
        type=click.Choice(("kserve", "tfserving", "post")),
        default=ServerOptions.api,
        help="KServe v2, TensorFlow Serving's REST, or a plain POST. Default: kserve.",
    ),
    click.option(
        "--encoding",
        type=click.Choice(_ENCODINGS),
        help="Form of the tensors: binary or json over HTTP, raw or typed over gRPC. Default: binary, raw.",
    ),
    click.option(
        "--shared-memory",
        type=click.Choice(("none", "system")),
        default=ServerOptions.shared_memory,
        help="Memory for the tensors that client and Triton share, for example with --trial. Default: none.",
    ),
    click.option(
        "--content-type",
        default=ServerOptions.content_type,
        metavar="TYPE",
        help="Type of the body with --api post.",
    ),
    click.option(
        "--header",
        "headers",
        multiple=True,
        metavar="NAME:VALUE",
        help="Header of every request, over gRPC its metadata.",
    ),
    click.option(
        "--api-key-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="File with an API key, sent as Authorization: Bearer. Of a folder, as a mounted Secret is, the first valid key.",
    ),
    click.option("--ca", metavar="FILE", help="Certificates of the authorities to trust. Default: the system's."),
    click.option(
        "--server-name", metavar="NAME", help="Name in the server's certificate. Default: the host of the URL."
    ),
    click.option("--cert", metavar="FILE", help="Certificate of the client."),
    click.option("--key", metavar="FILE", help="Key of the client's certificate."),
    click.option(
        "--request-timeout",
        type=DURATION,
        default=ServerOptions.request_timeout,
        metavar="TIME",
        help="Time-out of a request. Default: 30s.",
    ),
    click.option(
        "--channels",
        type=click.IntRange(1, 256),
        default=ServerOptions.channels,
        metavar="N",
        help="Connections of gRPC. Default: 4.",
    ),
    click.option("--pod-header", default="", metavar="NAME", help="Header of an answer that names the replica."),
)


def request_headers(arguments: Sequence[str], key_file: Path | None) -> tuple[tuple[str, str], ...]:
    """Return the headers of every request, from NAME:VALUE arguments and the file of an API key.

    Raises:
        InputError: an argument isn't NAME:VALUE, or the file has no API key.
    """
    headers: list[tuple[str, str]] = []
    for argument in arguments:
        name, sign, value = argument.partition(":")
        if not sign or not name.strip() or not name.isascii():
            raise InputError(f"--header {argument}: it must be NAME:VALUE, for example --header x-team:vision")
        if not _TOKEN.fullmatch(name.strip()) or not value.strip().isascii() or not value.strip().isprintable():
            raise InputError(
                f"--header {argument!r}: the name must have no spaces, and the value only printable ASCII characters, for "
                "example --header x-team:vision"
            )
        headers.append((name.strip(), value.strip()))
    if key_file is not None:
        try:
            headers.append(authorization(key_file))
        except SettingError as error:
            raise InputError(f"--api-key-file {error}") from None
    return tuple(headers)
