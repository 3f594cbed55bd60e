"""Certificates for servers on 127.0.0.1."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Pair:
    """A self-signed certificate, which is its own CA, and its key."""

    crt: str
    key: str

    @property
    def der(self) -> bytes:
        return ssl.PEM_cert_to_DER_cert(self.crt)


def pair(*, password: bytes | None = None, left: dt.timedelta = dt.timedelta(days=5)) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    # Each CA needs its own name, because clients distinguish CAs by name.
    serial = x509.random_serial_number()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"m-{serial:x}")])
    now = dt.datetime.now(dt.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - dt.timedelta(days=9))
        .not_valid_after(now + left)
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    hidden = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM).decode(),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden).decode(),
    )
