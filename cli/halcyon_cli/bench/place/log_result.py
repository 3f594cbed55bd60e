"""The result of a client in the cluster, as lines of its log between markers. Pure.

A log is the only way from a pod without a token to the command: through the API server, with the user's rights. Lines are
base64 with a checksum at the end, so a cut-off or rotated log is recognized. `requests.npz` follows the document if it is
small enough for a log.
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
"""Largest `requests.npz` in a log, which the kubelet rotates at 10 MiB."""
_COLUMNS = 4000


class ResultError(Failure):
    """A log without a whole result."""


def document_name(number: int) -> str:
    """Return the name of the n-th document in a log; the first has that of an only one."""
    return DOCUMENT if number == 0 else f"bench-{number}.json"


def lines(name: str, content: bytes) -> Iterator[str]:
    """Yield the lines of a log that hold a file."""
    yield BEGIN.format(name=name)
    yield from textwrap.wrap(base64.b64encode(zlib.compress(content, 9)).decode(), _COLUMNS)
    yield END.format(name=name, digest=_digest(content))


def content(log: Sequence[str], name: str) -> bytes | None:
    """Return the file of this name in a log; None if the log has none.

    Raises:
        ResultError: it isn't whole.
    """
    begin = BEGIN.format(name=name)
    if begin not in log:
        return None
    start = len(log) - 1 - list(reversed(log)).index(begin)
    head = END.format(name=name, digest="").removesuffix("-----")
    stop = next((n for n in range(start, len(log)) if log[n].startswith(head)), None)
    found = None if stop is None else _decoded(log[start + 1 : stop])
    if stop is None or found is None or log[stop] != END.format(name=name, digest=_digest(found)):
        raise ResultError(f"the log of the client has no whole {name}; run the measurement again")
    return found


def _decoded(text: Sequence[str]) -> bytes | None:
    try:
        return zlib.decompress(base64.b64decode("".join(text), validate=True))
    except (binascii.Error, zlib.error):
        return None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
