"""Types for the rendering of haproxy.cfg and for access to the running HAProxy: ports, TLS files, server keys."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from halcyon.balancer.config.writer import ConfigError

USERS_ROW: Final = 1
"""Key of the row in HAProxy's stick table that counts all requests except those of batch inference."""
LOWER_ROW: Final = 2
"""Key of the row in HAProxy's stick table that counts the requests of batch inference."""
SENT_ROW: Final = 3
"""Key of the row in HAProxy's stick table whose field `conn_cur` is the number of batch inference requests in progress
at servers."""
ROOM: Final = "proc.room"
"""HAProxy variable with the limit on rows in progress at servers below which a request of batch inference is sent. If
it is 0, none is sent."""
LOWER_ROWS: Final = "proc.lower_rows"
"""HAProxy variable with a second limit: a request of batch inference is sent only while fewer rows of batch inference
than this are in progress at servers."""
USER_ROWS: Final = "proc.user_rows"
"""HAProxy variable with the mean number of input rows (batch items) in a user's request. It is at least 1."""

BATCH_US: Final = "proc.batch_us"
"""HAProxy variable with the fixed part of a batch's execution time (independent of its rows) minus
`lower_room.AHEAD_S`, in microseconds. It determines when rows of batch inference are sent: just before the next batch
begins. If it is 0, they are sent at any time."""
ROW_US: Final = "proc.row_us"
"""HAProxy variable with the time that each row adds to a batch, in microseconds."""
NEXT_ROWS: Final = "proc.next_rows"
"""HAProxy variable with the rows of batch inference to add to the next batch if no user has sent any for it, in
hundredths."""
NEXT_LESS: Final = "proc.next_less"
"""HAProxy variable with the number of rows, in hundredths, by which each request of a user reduces `NEXT_ROWS`."""
LOWER_VARIABLES: Final = (ROOM, LOWER_ROWS, USER_ROWS, BATCH_US, ROW_US, NEXT_ROWS, NEXT_LESS)
"""HAProxy variables for batch inference. The initial value of each is 0."""

_FILE = re.compile(r"[a-z][a-z0-9.-]{0,63}")


@dataclass(frozen=True)
class TlsFiles:
    """Names of the certificate files in the folder of the runtime socket."""

    certificate: str = ""
    """File with the server's certificate chain and key; empty if there is none yet. Without it, no client can
    connect."""
    clients: str = ""
    """File with the CAs that have issued the clients' certificates; empty if clients need no certificate."""


@dataclass(frozen=True)
class Ports:
    """Port numbers of HAProxy and of Triton."""

    http: int = 8000
    grpc: int = 8001
    metrics: int = 9101
    server_http: int = 8000
    server_grpc: int = 8001


@dataclass(frozen=True)
class Listen:
    """Listen addresses and file paths of this pod's HAProxy."""

    ports: Ports = Ports()
    dual_stack: bool = False
    """Whether HAProxy also listens on IPv6. Must be false if the node has no IPv6, because HAProxy would not start."""
    socket_path: str = "/run/halcyon/haproxy.sock"
    """Path of the runtime socket in HAProxy's container. HAProxy's other files are in the same folder."""
    tls: TlsFiles | None = None
    """TLS files; None if clients use plain text."""
    keys: str | None = None
    """Name of the file with the API key digests, in the folder of the runtime socket; None if clients need no key."""

    def beside(self, name: str) -> str:
        """Return the path of a file or socket in the folder of the runtime socket, in HAProxy's container.

        Raises:
            ConfigError: the name does not match the allowed pattern.
        """
        if not _FILE.fullmatch(name):
            raise ConfigError(f"a file is named {name!r}; it must match {_FILE.pattern}, for example hold.lua")
        return str(PurePosixPath(self.socket_path).with_name(name))


@dataclass(frozen=True, order=True)
class ServerKey:
    """Identity of one HAProxy server: its slot and its number, which are the same for HTTP and gRPC.

    For example, slot `a` and number 3 stand for `s3` in `http_a` and in `grpc_a`.
    """

    slot: str
    number: int
