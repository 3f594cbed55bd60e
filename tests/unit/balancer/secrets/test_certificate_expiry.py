"""Until when certificates are valid, by those that a library has made; and when that is told."""

from __future__ import annotations

import base64
import datetime as dt
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from halcyon.balancer.secrets.certificate_expiry import MAX_WARNING_S, Validity, describe, of_pem

KEY = ec.generate_private_key(ec.SECP256R1())
NOW = dt.datetime(2026, 11, 22, 10, tzinfo=dt.UTC)
DAY_S = 86400.0


def pem(begins: dt.datetime, ends: dt.datetime, *, subject: str = "digits.example.com") -> str:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(KEY.public_key())
        .serial_number(2**159 - 1)
        .not_valid_before(begins)
        .not_valid_after(ends)
        .sign(KEY, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def lasting(days: float, *, of: float = 90) -> Validity:
    """A certificate of so many days, of which so many are left."""
    return Validity(NOW.timestamp() - (of - days) * DAY_S, NOW.timestamp() + days * DAY_S)


@pytest.mark.parametrize(
    ("begins", "ends"),
    [
        (dt.datetime(2026, 11, 22, 10, 1, 2, tzinfo=dt.UTC), dt.datetime(2027, 2, 20, tzinfo=dt.UTC)),
        # Times from 2050 on are written in another way, and years below 50 are of this century.
        (dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.datetime(2049, 12, 31, 23, 59, 59, tzinfo=dt.UTC)),
        (dt.datetime(2049, 1, 1, tzinfo=dt.UTC), dt.datetime(2050, 1, 1, tzinfo=dt.UTC)),
        (dt.datetime(2050, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC)),
    ],
)
def test_both_times_are_those_of_the_signed_certificate(begins: dt.datetime, ends: dt.datetime) -> None:
    assert of_pem(pem(begins, ends)) == (Validity(begins.timestamp(), ends.timestamp()),)


def test_every_certificate_counts_in_its_order_and_no_key_does() -> None:
    key = KEY.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    ends = [NOW + dt.timedelta(days=days) for days in (10, 700)]
    chain = "".join(pem(NOW, end, subject="x" * 60) for end in ends)
    assert [validity.ends for validity in of_pem(chain + key)] == [end.timestamp() for end in ends]
    assert of_pem(key) == ()


DER = ssl.PEM_cert_to_DER_cert(pem(NOW, NOW + dt.timedelta(days=1)))


@given(st.binary(max_size=40) | st.integers(0, 200).map(lambda size: DER[:size]))
def test_a_text_that_is_no_certificate_is_refused(content: bytes) -> None:
    text = f"-----BEGIN CERTIFICATE-----\n{base64.b64encode(content).decode()}\n-----END CERTIFICATE-----\n"
    try:
        validities = of_pem(text)
    except ValueError:
        return
    assert all(isinstance(validity, Validity) for validity in validities)


@pytest.mark.parametrize(
    ("certificate", "message"),
    [
        (lasting(15), ""),
        (lasting(13.5), "expires in 13 days, on 2026-12-05T22:00:00Z"),
        (lasting(1.5), "expires in 1 day, on 2026-11-23T22:00:00Z"),
        (lasting(0.5), "expires in less than a day, on 2026-11-22T22:00:00Z"),
        (lasting(-0.5), "expired less than a day ago, on 2026-11-21T22:00:00Z"),
        (lasting(-3), "expired 3 days ago, on 2026-11-19T10:00:00Z"),
        # One of a day is renewed when a third of it is left: that is no trouble.
        (lasting(0.33, of=1), ""),
        (lasting(0.19, of=1), "expires in less than a day, on 2026-11-22T14:33:36Z"),
        (lasting(91), "is not valid before 2026-11-23T10:00:00Z"),
    ],
)
def test_the_remaining_days_are_reported_in_time(certificate: Validity, message: str) -> None:
    assert certificate.describe(NOW.timestamp()) == message
    assert certificate.is_over(NOW.timestamp()) == message.startswith("expired")


def test_the_report_names_the_key_and_the_certificate_among_several() -> None:
    now = NOW.timestamp()
    assert describe("tls.crt", [lasting(80)], now) == ""
    assert (
        describe("tls.crt", [lasting(13)], now)
        == "tls.crt expires in 13 days, on 2026-12-05T10:00:00Z; put a new certificate into the Secret"
    )
    message = describe("ca.crt", [lasting(400, of=700), lasting(-3)], now)
    assert message.startswith("certificate 2 of 2 in ca.crt expired 3 days ago")
    assert MAX_WARNING_S == 14 * DAY_S
