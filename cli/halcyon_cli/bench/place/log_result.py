"""Transfer of a result from a client in the cluster, as lines of its log between markers. Pure.

The client's pod has no token, so the command reads its log through the API server, with the user's permissions. Lines
are base64 with a checksum at the end, so a truncated or rotated log is detected. `requests.npz` follows the document if
it is small enough for a log.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import textwrap
import zlib
from collections.abc import Iterator, Sequence

from halcyon_cli.errors import Failure

BEGIN, END = "-----BEGIN HALCYON BENCH {name}-----", "-----END HALCYON BENCH {name} {digest}-----"
DOCUMENT, REQUESTS = "bench.json", "requests.npz"
MAX_REQUESTS_BYTES = 6 * 2**20
"""Maximum size of `requests.npz` in a log, in bytes. The kubelet rotates a log at 10 MiB."""
_COLUMNS = 4000


class ResultError(Failure):
    """The log doesn't contain a complete result."""


def document_name(number: int) -> str:
    """Return the name of the n-th document in a log. The name of the first is that of a single document."""
    return DOCUMENT if number == 0 else f"bench-{number}.json"


def lines(name: str, content: bytes) -> Iterator[str]:
    """Yield the log lines that transfer a file."""
    yield BEGIN.format(name=name)
    yield from textwrap.wrap(base64.b64encode(zlib.compress(content, 9)).decode(), _COLUMNS)
    yield END.format(name=name, digest=_digest(content))


def content(log: Sequence[str], name: str) -> bytes | None:
    """Return the content of a file in a log; None if the log doesn't contain the file.

    Raises:
        ResultError: the file is incomplete.
    """
    begin = BEGIN.format(name=name)
    if begin not in log:
        return None
    start = len(log) - 1 - list(reversed(log)).index(begin)
    head = END.format(name=name, digest="").removesuffix("-----")
    stop = next((n for n in range(start, len(log)) if log[n].startswith(head)), None)
    decoded = None if stop is None else _decoded(log[start + 1 : stop])
    if stop is None or decoded is None or log[stop] != END.format(name=name, digest=_digest(decoded)):
        raise ResultError(f"the log of the client has no whole {name}; run the measurement again")
    return decoded


def _decoded(text: Sequence[str]) -> bytes | None:
    try:
        return zlib.decompress(base64.b64decode("".join(text), validate=True))
    except (binascii.Error, zlib.error):
        return None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
