"""The operator's own certificate authority."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st

from halcyon.metricsapi.certificates import (
    CA_LIFE,
    SERVING_LIFE,
    SLACK,
    SPREAD,
    Certificates,
    issue,
    issued_by,
    load,
    make_ca,
    needs_rotation,
    renewed,
)
from tests.drawn import draws

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAMES = ("halcyon.halcyon-system.svc", "halcyon-agents.halcyon-system.svc", "10.1.2.3")
DAY = timedelta(days=1)


def test_the_serving_certificate_has_its_names_and_purpose() -> None:
    ca = make_ca(NOW)
    cert = load(issue(ca, NAMES, NOW).cert_pem)
    names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == list(NAMES)
    usage = cert.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    key = cert.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"
    assert cert.not_valid_after_utc == NOW + SERVING_LIFE
    assert not cert.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_a_ca_signs_its_own_and_no_others() -> None:
    ca, other = make_ca(NOW), make_ca(NOW)
    cert = issue(ca, NAMES, NOW).cert_pem
    assert issued_by(cert, ca.cert_pem)
    assert not issued_by(cert, other.cert_pem)


def test_a_certificate_never_outlives_its_ca() -> None:
    cert = load(issue(make_ca(NOW), NAMES, NOW + CA_LIFE - DAY).cert_pem)
    assert cert.not_valid_after_utc == NOW + CA_LIFE


def test_a_certificate_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="requires a name"):
        issue(make_ca(NOW), [], NOW)


def test_a_certificate_is_renewed_when_a_third_is_left() -> None:
    cert = issue(make_ca(NOW), NAMES, NOW).cert_pem
    assert not needs_rotation(cert, NOW + timedelta(days=59))
    assert needs_rotation(cert, NOW + timedelta(days=61))


def test_certificates_stay_while_no_renewal_is_due() -> None:
    first = renewed(None, NAMES, NOW)
    assert renewed(first, NAMES, NOW + timedelta(days=30)) == first


def test_certificates_of_a_clock_that_was_ahead_are_replaced() -> None:
    ahead = renewed(None, NAMES, NOW + 3 * DAY)
    assert load(ahead.serving.cert_pem).not_valid_before_utc > NOW, "no client accepts it yet"
    certificates = renewed(ahead, NAMES, NOW)
    for pem in (certificates.serving.cert_pem, certificates.ca.cert_pem):
        assert load(pem).not_valid_before_utc <= NOW
    assert issued_by(certificates.serving.cert_pem, certificates.ca.cert_pem)

    # Only the serving certificate was renewed by the wrong clock.
    stored = renewed(None, NAMES, NOW - 61 * DAY)
    later = renewed(stored, NAMES, NOW + 3 * DAY)
    assert later.serving != stored.serving
    certificates = renewed(later, NAMES, NOW)
    assert certificates.ca == stored.ca
    assert load(certificates.serving.cert_pem).not_valid_before_utc <= NOW


def test_changed_names_make_a_new_certificate_of_the_same_ca() -> None:
    first = renewed(None, NAMES, NOW)
    second = renewed(first, [*NAMES, "new.example"], NOW)
    assert second.ca == first.ca
    assert second.serving != first.serving


def test_a_ca_is_followed_by_one_that_is_known_before_it_signs() -> None:
    first = renewed(None, NAMES, NOW)
    due = NOW + 2 * CA_LIFE / 3 + DAY
    second = renewed(first, NAMES, due)
    assert second.next_ca is not None
    assert second.ca == first.ca
    assert issued_by(second.serving.cert_pem, first.ca.cert_pem)
    assert second.next_ca.cert_pem in second.bundle_pem
    assert renewed(second, NAMES, due + SPREAD / 2).ca == first.ca
    third = renewed(second, NAMES, due + SPREAD)
    assert third.ca == second.next_ca
    assert third.next_ca is None
    assert issued_by(third.serving.cert_pem, second.next_ca.cert_pem)
    assert first.ca.cert_pem in third.bundle_pem
    late = renewed(third, NAMES, NOW + CA_LIFE + DAY)
    assert first.ca.cert_pem not in late.bundle_pem


def test_a_published_ca_signs_at_once_if_its_predecessor_has_expired() -> None:
    first = renewed(None, NAMES, NOW)
    end = load(first.ca.cert_pem).not_valid_after_utc
    second = renewed(first, NAMES, end - SPREAD / 2)
    for late in (timedelta(minutes=30), 6 * timedelta(hours=1)):
        third = renewed(second, NAMES, end + late)
        assert third.ca == second.next_ca
        assert issued_by(third.serving.cert_pem, third.ca.cert_pem)
        assert load(third.serving.cert_pem).not_valid_after_utc > end + 30 * DAY


def test_an_operator_back_after_a_long_absence_starts_afresh() -> None:
    first = renewed(None, NAMES, NOW)
    later = NOW + CA_LIFE + DAY
    second = renewed(first, NAMES, later)
    assert second.ca != first.ca
    assert load(second.serving.cert_pem).not_valid_after_utc > later


@draws(1.5)
@given(st.lists(st.integers(1, 200), min_size=1, max_size=12))
def test_a_served_certificate_is_valid_and_trusted_by_yesterdays_bundle(days: list[int]) -> None:
    now, stored = NOW, renewed(None, NAMES, NOW)
    for step in days:
        before = stored.bundle_pem
        now += step * DAY
        stored = renewed(stored, NAMES, now)
        leaf = load(stored.serving.cert_pem)
        assert leaf.not_valid_before_utc - SLACK < now < leaf.not_valid_after_utc
        bundle = x509.load_pem_x509_certificates(before.encode())
        trusted = [ca for ca in bundle if issued_by(stored.serving.cert_pem, _pem(ca))]
        assert trusted
        assert all(ca.not_valid_after_utc > now for ca in trusted)
        assert Certificates.from_secret(stored.to_secret()) == stored


def _pem(cert: x509.Certificate) -> str:
    return cert.public_bytes(Encoding.PEM).decode()


def test_a_secret_holds_all_and_gives_it_back() -> None:
    stored = renewed(None, NAMES, NOW)
    data = stored.to_secret()
    assert set(data) == {"tls.crt", "tls.key", "ca.crt", "signing-ca.crt", "signing-ca.key"}
    assert Certificates.from_secret(data) == stored


@pytest.mark.parametrize("key", ["tls.crt", "tls.key", "ca.crt", "signing-ca.crt", "signing-ca.key"])
def test_an_incomplete_or_malformed_secret_is_refused(key: str) -> None:
    data = renewed(None, NAMES, NOW).to_secret()
    with pytest.raises(ValueError, match=key):
        Certificates.from_secret({**data, key: ""})
    with pytest.raises(ValueError):  # noqa: PT011  # the words are those of the cryptography package
        Certificates.from_secret({**data, key: "rubbish"})


def test_a_secret_with_anothers_key_is_refused() -> None:
    data = renewed(None, NAMES, NOW).to_secret()
    other = renewed(None, NAMES, NOW).to_secret()
    with pytest.raises(ValueError, match="private key of another certificate"):
        Certificates.from_secret({**data, "tls.key": other["tls.key"]})


def test_a_key_is_not_shown() -> None:
    assert "PRIVATE" not in repr(renewed(None, NAMES, NOW))
