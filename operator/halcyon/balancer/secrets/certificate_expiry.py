"""From when until when certificates are valid, and what is to be said of it. Pure.

The standard library tells this of authorities only, and the agent's imports stay few: its memory is a budget. So the two times are read
from where they stand in the DER (RFC 5280, section 4.1):

    Certificate  ::= SEQUENCE { tbsCertificate, ... }
    tbsCertificate ::= SEQUENCE { [0] version OPTIONAL, serialNumber, signature, issuer, validity SEQUENCE { notBefore, notAfter }, ... }
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from halcyon.api.timestamps import rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SOON_S = 14 * 86400.0
"""So long before its end a certificate is told of,"""
SOON_SHARE = 0.2
"""or this share of its life, where that is less: one that lives a day is renewed in its last hours."""
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----\n.+?-----END CERTIFICATE-----\n", re.DOTALL)
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
_DAY_S = 86400.0


@dataclass(frozen=True)
class Validity:
    """Of one certificate, in seconds since the epoch."""

    begins: float
    ends: float

    def is_over(self, now: float) -> bool:
        """Whether clients refuse it."""
        return now > self.ends

    def say(self, now: float) -> str:
        """What is wrong with it, or will soon be; empty where nothing is."""
        if now < self.begins:
            return f"is not valid before {rfc3339(self.begins)}"
        left_s = self.ends - now
        if left_s < 0:
            return f"expired {_days(-left_s, 'less than a day')} ago, on {rfc3339(self.ends)}"
        if left_s < min(SOON_S, SOON_SHARE * (self.ends - self.begins)):
            return f"expires in {_days(left_s, 'less than a day')}, on {rfc3339(self.ends)}"
        return ""


def of_pem(text: str) -> tuple[Validity, ...]:
    """Of each certificate in the text, in their order.

    Raises:
        ValueError: one of them is none.
    """
    return tuple(_of_der(ssl.PEM_cert_to_DER_cert(found[0])) for found in _CERTIFICATE.finditer(text))


def say(key: str, certificates: Iterable[Validity], now: float) -> str:
    """What is wrong with the certificates under a Secret's key, or will soon be; empty where nothing is."""
    every = tuple(certificates)
    said = []
    for number, certificate in enumerate(every, 1):
        if wrong := certificate.say(now):
            which = key if len(every) == 1 else f"certificate {number} of {len(every)} in {key}"
            said.append(f"{which} {wrong}")
    return f"{'; '.join(said)}; put a new one into the Secret" if said else ""


def _of_der(der: bytes) -> Validity:
    try:
        fields = _parts(_inside(_inside(der)))
        tag, _ = first = next(fields)
        # Behind the version, where there is one: serial number, algorithm, issuer.
        for _ in range(3 + (tag == _VERSION)):
            first = next(fields)
        begins, ends = (_time(*part) for part in _parts(first[1]))
    except (StopIteration, IndexError, ValueError) as error:
        raise ValueError(f"a certificate can't be read: {error!r}") from error
    return Validity(begins, ends)


def _inside(der: bytes) -> bytes:
    tag, content = next(_parts(der))
    if tag != _SEQUENCE:
        raise ValueError(f"tag {tag:#x} where a sequence was expected")
    return content


def _parts(der: bytes) -> Iterator[tuple[int, bytes]]:
    """(tag, content) of what stands one behind the other."""
    at = 0
    while at < len(der):
        tag, length = der[at], der[at + 1]
        at += 2
        if length & 0x80:
            more = length & 0x7F
            length = int.from_bytes(der[at : at + more], "big")
            at += more
        if at + length > len(der):
            raise ValueError("it ends in the middle")
        yield tag, der[at : at + length]
        at += length


def _time(tag: int, content: bytes) -> float:
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        # Of two digits, those from 50 on are of the last century.
        text = ("19" if text[:2] >= "50" else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError(f"tag {tag:#x} where a time was expected")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _days(seconds: float, none: str) -> str:
    days = int(seconds // _DAY_S)
    return none if not days else f"{days} day{'' if days == 1 else 's'}"
