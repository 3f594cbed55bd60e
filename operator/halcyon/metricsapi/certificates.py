"""Certificate authority and serving certificate of the operator: creation, renewal, and conversion to and from a Secret. Pure.

Reading and writing the Secret is out of scope. Lifetimes:

- The CA is valid for 3 years. A new CA is created when a third of this time is left, so the operator can be down for a year. A longer
  lifetime would only help an attacker who has stolen the key, because clients receive a new CA from the operator.
- A new CA is first published in the CA bundle together with the old one, and signs certificates only after `SPREAD`. By then clients of
  the bundle (the API server, the agents) trust it, so no handshake fails during a rotation.
- The serving certificate is valid for 90 days, and is renewed when a third of this time is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_LIFE = timedelta(days=3 * 365)
SERVING_LIFE = timedelta(days=90)
SPREAD = timedelta(days=1)
"""Time for which a new CA is only published before it signs certificates, so that all clients trust it by then."""
SLACK = timedelta(hours=2)
"""Time by which the start of a certificate's validity is backdated. It is needed because the clocks within a cluster
differ."""


@dataclass(frozen=True)
class Pair:
    """Certificate and private key, both in PEM."""

    cert_pem: str
    key_pem: str

    def __repr__(self) -> str:
        """Return a representation without the private key, which must not be logged."""
        return f"Pair({load(self.cert_pem).subject.rfc4514_string()})"


@dataclass(frozen=True)
class Certificates:
    """Contents of the Secret with the operator's certificates."""

    serving: Pair
    ca: Pair
    """CA that signs serving certificates."""
    next_ca: Pair | None = None
    """New CA that is published but does not sign yet; None if there is no such CA."""
    former_cas: tuple[str, ...] = ()
    """Certificates of earlier CAs, which stay trusted until they expire."""

    @property
    def bundle_pem(self) -> str:
        """CA bundle for clients, in PEM: for the APIService's `caBundle`, and for the agents."""
        successor = [] if self.next_ca is None else [self.next_ca.cert_pem]
        return "".join([self.ca.cert_pem, *successor, *self.former_cas])

    def to_secret(self) -> dict[str, str]:
        """Return the `stringData` of a Secret of type kubernetes.io/tls, with `ca.crt` and the keys that `from_secret` needs."""
        data = {
            "tls.crt": self.serving.cert_pem,
            "tls.key": self.serving.key_pem,
            "ca.crt": self.bundle_pem,
            "signing-ca.crt": self.ca.cert_pem,
            "signing-ca.key": self.ca.key_pem,
        }
        if self.next_ca is not None:
            data |= {"next-ca.crt": self.next_ca.cert_pem, "next-ca.key": self.next_ca.key_pem}
        return data

    @classmethod
    def from_secret(cls, data: Mapping[str, str]) -> Certificates:
        """Parse the certificates in a Secret's data, which must be decoded from base64.

        Raises:
            ValueError: a key is missing, or a value is not a certificate or does not match its private key.
        """
        for key in ("tls.crt", "tls.key", "ca.crt", "signing-ca.crt", "signing-ca.key"):
            if not data.get(key):
                raise ValueError(f"the Secret with the operator's certificates has no key {key}")
        ca = Pair(data["signing-ca.crt"], data["signing-ca.key"])
        next_ca = Pair(data["next-ca.crt"], data["next-ca.key"]) if data.get("next-ca.crt") else None
        current = {ca.cert_pem, *([] if next_ca is None else [next_ca.cert_pem])}
        former = tuple(pem for pem in _split(data["ca.crt"]) if pem not in current)
        result = cls(Pair(data["tls.crt"], data["tls.key"]), ca, next_ca, former)
        for pair in (result.serving, ca, *([] if next_ca is None else [next_ca])):
            if _key(pair).public_key() != load(pair.cert_pem).public_key():
                raise ValueError(
                    f"the Secret with the operator's certificates: {pair!r} has the private key of another certificate"
                )
        return result


def make_ca(now: datetime) -> Pair:
    """Create a certificate authority with an ECDSA key on P-256."""
    key = ec.generate_private_key(ec.SECP256R1())
    # The name contains the time, because during a rotation clients trust two CAs and must be able to distinguish them.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"halcyon-ca-{now:%Y%m%d%H%M%S}")])
    builder = _builder(name, name, key.public_key(), now, now + CA_LIFE)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue(ca: Pair, names: Iterable[str], now: datetime) -> Pair:
    """Issue a serving certificate for these DNS names and IP addresses. It expires no later than its CA.

    Raises:
        ValueError: `names` is empty.
    """
    hosts = list(dict.fromkeys(names))
    if not hosts:
        raise ValueError("a serving certificate requires a name, for example halcyon.halcyon-system.svc")
    issuer, issuer_key = load(ca.cert_pem), _key(ca)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "halcyon")])
    end = min(now + SERVING_LIFE, issuer.not_valid_after_utc)
    builder = _builder(subject, issuer.subject, key.public_key(), now, end)
    builder = builder.add_extension(x509.SubjectAlternativeName([_general(name) for name in hosts]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = builder.add_extension(authority, critical=False)
    return _pair(builder.sign(issuer_key, hashes.SHA256()), key)


def needs_rotation(cert_pem: str, now: datetime) -> bool:
    """Return True if less than a third of the lifetime of a certificate is left."""
    cert = load(cert_pem)
    return cert.not_valid_after_utc - now < (cert.not_valid_after_utc - cert.not_valid_before_utc) / 3


def renewed(stored: Certificates | None, names: Iterable[str], now: datetime) -> Certificates:
    """Return the certificates to store now; equal to `stored` if none needs to be renewed.

    A certificate with less than a third of its time left is renewed, and so is one with wrong names or a wrong CA. A
    new CA is published before it signs.
    """
    # | stored                                            | result                                                  |
    # | ------------------------------------------------- | ------------------------------------------------------- |
    # | nothing, or no CA that is valid now               | new CA and new serving certificate                      |
    # | CA with less than a third left, no new CA         | new CA, only published                                  |
    # | new CA published for `SPREAD`, or old CA expired  | new CA signs; old CA stays trusted until it expires     |
    # | serving certificate with less than a third left   | new serving certificate                                 |
    # | serving certificate that is not valid yet         | new serving certificate                                 |
    # | serving certificate with other names or other CA  | new serving certificate                                 |
    unique_names = list(dict.fromkeys(names))
    if stored is None or not any(_is_valid(ca.cert_pem, now) for ca in (stored.ca, stored.next_ca) if ca):
        ca = make_ca(now)
        return Certificates(issue(ca, unique_names, now), ca)
    former = tuple(pem for pem in stored.former_cas if load(pem).not_valid_after_utc > now)
    result = stored if former == stored.former_cas else replace(stored, former_cas=former)
    if result.next_ca is None and needs_rotation(result.ca.cert_pem, now):
        result = replace(result, next_ca=make_ca(now))
    elif (next_ca := result.next_ca) is not None and not (
        _is_valid(result.ca.cert_pem, now) and now < load(next_ca.cert_pem).not_valid_before_utc + SLACK + SPREAD
    ):
        replaced = () if load(result.ca.cert_pem).not_valid_after_utc <= now else (result.ca.cert_pem,)
        result = Certificates(issue(next_ca, unique_names, now), next_ca, None, (*replaced, *former))
    serving = result.serving.cert_pem
    if (
        needs_rotation(serving, now)
        or not _is_valid(serving, now)
        or _names(serving) != set(unique_names)
        or not issued_by(serving, result.ca.cert_pem)
    ):
        result = replace(result, serving=issue(result.ca, unique_names, now))
    return result


def _is_valid(cert_pem: str, now: datetime) -> bool:
    """Return whether the time `now` is in the certificate's validity period, which may begin in the future."""
    cert = load(cert_pem)
    return cert.not_valid_before_utc <= now < cert.not_valid_after_utc


def load(cert_pem: str) -> x509.Certificate:
    """Parse a certificate in PEM.

    Raises:
        ValueError: the string is not a certificate.
    """
    return x509.load_pem_x509_certificate(cert_pem.encode())


def issued_by(cert_pem: str, ca_pem: str) -> bool:
    """Return True if the certificate was signed with the CA's key."""
    return signed(load(cert_pem), load(ca_pem))


def signed(cert: x509.Certificate, ca: x509.Certificate) -> bool:
    """Return True if `cert` was signed with the key of `ca`, and names `ca` as its issuer."""
    try:
        cert.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now.astimezone(UTC) - SLACK).not_valid_after(end.astimezone(UTC))
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _names(cert_pem: str) -> set[str]:
    names = load(cert_pem).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in names}


def _key(pair: Pair) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pair.key_pem.encode(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"the private key of {pair!r} is not an elliptic-curve key")  # noqa: TRY004  # one kind to catch
    return key


def _pair(cert: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pair(cert.public_bytes(serialization.Encoding.PEM).decode(), secret.decode())


def _split(bundle_pem: str) -> list[str]:
    return [
        cert.public_bytes(serialization.Encoding.PEM).decode()
        for cert in x509.load_pem_x509_certificates(bundle_pem.encode())
    ]
