"""A front-proxy CA and client certificates, as in a cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from halcyon.metricsapi.certificates import Pair, load


def client_certificate(
    ca: Pair,
    name: str = "front-proxy-client",
    *,
    usage: x509.ObjectIdentifier = ExtendedKeyUsageOID.CLIENT_AUTH,
    now: datetime | None = None,
    life: timedelta = timedelta(days=1),
) -> Pair:
    """Return a client certificate signed by `ca`, as kubeadm creates it.

    It has a common name and an extended key usage, and no other names.
    """
    now = now or datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    issuer_key = load_pem_private_key(ca.key_pem.encode(), None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    cert = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(load(ca.cert_pem).subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + life)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        # Set the key identifier, which Go uses to distinguish CAs with the same name.
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(issuer_key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Pair(cert.public_bytes(Encoding.PEM).decode(), secret.decode())
