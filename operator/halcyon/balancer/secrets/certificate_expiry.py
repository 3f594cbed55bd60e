"""Validity period of certificates, with warnings before they expire. Pure.

The standard library reads this period only from CA certificates, and the agent avoids large imports because its memory
is limited. This module therefore reads the two times from their positions in the DER encoding (RFC 5280, section 4.1).
"""

# Certificate  ::= SEQUENCE { tbsCertificate, ... }
# tbsCertificate ::= SEQUENCE { [0] version OPTIONAL, serialNumber, signature, issuer, validity SEQUENCE { notBefore, notAfter }, ... }

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from halcyon.api.timestamps import rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_WARNING_S = 14 * 86400.0
"""Maximum time before expiry at which a certificate is reported as expiring, in seconds."""
WARNING_SHARE = 0.2
"""Remaining share of a certificate's lifetime at which it is reported as expiring, if this time is shorter than
`MAX_WARNING_S`. A certificate that is valid for only one day is normally renewed in its last hours."""
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----\n.+?-----END CERTIFICATE-----\n", re.DOTALL)
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
_DAY_S = 86400.0


@dataclass(frozen=True)
class Validity:
    """Validity period of one certificate. Its start and end are in seconds since the epoch."""

    begins: float
    ends: float

    def is_over(self, now: float) -> bool:
        """Return True if the certificate has expired."""
        return now > self.ends

    def describe(self, now: float) -> str:
        """Return a message if the certificate is not valid now or expires soon; otherwise an empty string."""
        if now < self.begins:
            return f"is not valid before {rfc3339(self.begins)}"
        left_s = self.ends - now
        if left_s < 0:
            return f"expired {_days(-left_s)} ago, on {rfc3339(self.ends)}"
        if left_s < min(MAX_WARNING_S, WARNING_SHARE * (self.ends - self.begins)):
            return f"expires in {_days(left_s)}, on {rfc3339(self.ends)}"
        return ""


def of_pem(text: str) -> tuple[Validity, ...]:
    """Return the validity period of each certificate in the PEM text, in order.

    Raises:
        ValueError: one of the blocks is not a certificate.
    """
    return tuple(_of_der(ssl.PEM_cert_to_DER_cert(match[0])) for match in _CERTIFICATE.finditer(text))


def describe(key: str, certificates: Iterable[Validity], now: float) -> str:
    """Return a message about certificates in the key `key` of a Secret that are not valid now or expire soon.

    Return an empty string if there are none.
    """
    validities = tuple(certificates)
    problems = []
    for number, certificate in enumerate(validities, 1):
        if problem := certificate.describe(now):
            which = key if len(validities) == 1 else f"certificate {number} of {len(validities)} in {key}"
            problems.append(f"{which} {problem}")
    return f"{'; '.join(problems)}; put a new certificate into the Secret" if problems else ""


def _of_der(der: bytes) -> Validity:
    try:
        fields = _parts(_inside(_inside(der)))
        tag, _ = first = next(fields)
        # Skip the optional version, the serial number, the algorithm and the issuer.
        for _ in range(3 + (tag == _VERSION)):
            first = next(fields)
        begins, ends = (_time(*part) for part in _parts(first[1]))
    except (StopIteration, IndexError, ValueError) as error:
        raise ValueError(f"a certificate can't be parsed: {error!r}") from error
    return Validity(begins, ends)


def _inside(der: bytes) -> bytes:
    tag, content = next(_parts(der))
    if tag != _SEQUENCE:
        raise ValueError(f"found tag {tag:#x}, expected a sequence")
    return content


def _parts(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the tag and the content of each DER element in a sequence."""
    at = 0
    while at < len(der):
        tag, length = der[at], der[at + 1]
        at += 2
        if length & 0x80:
            more = length & 0x7F
            length = int.from_bytes(der[at : at + more], "big")
            at += more
        if at + length > len(der):
            raise ValueError("it is truncated")
        yield tag, der[at : at + length]
        at += length


def _time(tag: int, content: bytes) -> float:
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        # Two-digit years from 50 to 99 mean 1950 to 1999.
        text = ("19" if text[:2] >= "50" else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError(f"found tag {tag:#x}, expected a time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _days(seconds: float) -> str:
    days = int(seconds // _DAY_S)
    return f"{days} day{'' if days == 1 else 's'}" if days else "less than a day"
