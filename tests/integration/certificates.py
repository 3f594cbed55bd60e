"""Certificates of servers on 127.0.0.1."""

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
    """A certificate that is its own authority, and its key."""

    crt: str
    key: str

    @property
    def der(self) -> bytes:
        return ssl.PEM_cert_to_DER_cert(self.crt)


def signed() -> tuple[str, Pair]:
    """An authority's certificate, and a server's pair that comes from it: some clients take no authority for a server."""
    authority, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer, subject = (
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{what}-{x509.random_serial_number():x}")])
        for what in ("ca", "server")
    )
    now = dt.datetime.now(dt.UTC)

    def made(name: x509.Name, public: ec.EllipticCurvePublicKey, *, ca: bool) -> str:
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=5))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if not ca:
            addresses = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            builder = builder.add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        return builder.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    return made(issuer, authority.public_key(), ca=True), Pair(
        made(subject, key.public_key(), ca=False), _pem(key, serialization.NoEncryption())
    )


def pair(*, password: bytes | None = None, left: dt.timedelta = dt.timedelta(days=5)) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    # Authorities are told apart by their names.
    serial = x509.random_serial_number()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"m-{serial:x}")])
    now = dt.datetime.now(dt.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
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
        made.public_bytes(serialization.Encoding.PEM).decode(),
        _pem(key, hidden),
    )


def _pem(key: ec.EllipticCurvePrivateKey, hidden: serialization.KeySerializationEncryption) -> str:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden).decode()
