"""Service-account tokens by the keys that the API server publishes: whose they are, and what is nobody's."""

from __future__ import annotations

import base64
import hmac
import json
from functools import cache
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from halcyon.kube.auth import service_account_tokens
from halcyon.kube.auth.service_account_tokens import Account, Issuer

NAME, AUDIENCE, NOW = "https://kubernetes.default.svc", "halcyon", 1_800_000_000.0
AGENT = "system:serviceaccount:team:m-balancer"
GOOD: dict[str, Any] = {"iss": NAME, "aud": [AUDIENCE], "sub": AGENT, "nbf": NOW - 60, "exp": NOW + 600}


def text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int, *, size: int = 0) -> str:
    """Return a number of a key. A coordinate has the size of its curve, also if it begins with zeros (RFC 7518, 6.2.1.2)."""
    return text(value.to_bytes(size or (value.bit_length() + 7) // 8))


@cache
def private() -> tuple[rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey]:
    return rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP256R1())


@cache
def issuer() -> Issuer:
    by_rsa, by_ec = private()
    rsa_numbers, ec_numbers = by_rsa.public_key().public_numbers(), by_ec.public_key().public_numbers()
    keys = [
        {"kid": "rsa", "kty": "RSA", "n": number(rsa_numbers.n), "e": number(rsa_numbers.e)},
        {
            "kid": "ec",
            "kty": "EC",
            "crv": "P-256",
            "x": number(ec_numbers.x, size=32),
            "y": number(ec_numbers.y, size=32),
        },
        {"kid": "odd", "kty": "OKP"},
        {"kid": "broken", "kty": "RSA", "n": "*"},
    ]
    return Issuer.of(NAME, {"keys": keys})


def signed(claims: Any, *, kid: str = "rsa", alg: str = "RS256") -> str:
    by_rsa, by_ec = private()
    body = f"{text(json.dumps({'alg': alg, 'kid': kid}).encode())}.{text(json.dumps(claims).encode())}"
    if kid == "ec":
        r, s = decode_dss_signature(by_ec.sign(body.encode(), ec.ECDSA(SHA256())))
        return f"{body}.{text(r.to_bytes(32) + s.to_bytes(32))}"
    return f"{body}.{text(by_rsa.sign(body.encode(), padding.PKCS1v15(), SHA256()))}"


def whose(token: str) -> Account | None:
    return service_account_tokens.account(token, issuer(), audience=AUDIENCE, now_s=NOW)


def test_keys_of_unknown_kinds_are_left_out() -> None:
    assert set(issuer().keys) == {"rsa", "ec"}


@pytest.mark.parametrize(("kid", "alg"), [("rsa", "RS256"), ("ec", "ES256")])
def test_a_good_token_is_its_accounts(kid: str, alg: str) -> None:
    token = signed(GOOD, kid=kid, alg=alg)
    assert service_account_tokens.key_id(token) == kid
    assert whose(token) == Account(AGENT, "team")


def test_an_audience_may_be_a_single_text() -> None:
    assert whose(signed(GOOD | {"aud": AUDIENCE})) is not None


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://elsewhere"},
        {"aud": ["other"]},
        {"aud": None},
        {"exp": NOW - 60},
        {"exp": None},
        {"exp": "never"},
        {"exp": True},
        {"exp": float("nan")},
        {"exp": 10**400},
        {"nbf": NOW + 60},
        {"sub": "system:node:n1"},
        {"sub": "system:serviceaccount:team"},
        {"sub": "system:serviceaccount::m-balancer"},
        {"sub": 7},
    ],
    ids=str,
)
def test_a_well_signed_token_may_still_be_no_answer(claims: dict[str, Any]) -> None:
    assert whose(signed(GOOD | claims)) is None


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b",
        "a.b.c",
        signed(["no", "object"]),
        signed(GOOD, alg="none"),
        signed(GOOD, alg="ES256"),
        signed(GOOD, alg="HS256"),
        signed(GOOD, kid="unknown"),
        signed(GOOD, kid="ec", alg="ES384"),
        signed(GOOD).rpartition(".")[0] + ".",
        signed(GOOD) + "." * service_account_tokens.MAX_CHARACTERS,
        text(b"[" * 5000) + ".e30.e30",
    ],
    ids=range(12),
)
def test_a_token_without_the_issuers_signature_authenticates_no_account(token: str) -> None:
    assert whose(token) is None


@given(st.data())
def test_a_token_with_another_character_is_nobodys(data: st.DataObject) -> None:
    token = signed(GOOD)
    # The last character of each part has bits that mean nothing.
    places = [at for at, c in enumerate(token) if c != "." and token[at + 1 : at + 2] not in {"", "."}]
    at = data.draw(st.sampled_from(places))
    other = data.draw(st.sampled_from("abcXYZ019-_").filter(lambda c: c != token[at]))
    assert whose(token[:at] + other + token[at + 1 :]) is None


def test_keys_are_read_as_the_api_server_publishes_them() -> None:
    numbers = private()[0].public_key().public_numbers()
    entry = {"use": "sig", "kty": "RSA", "kid": "rsa", "alg": "RS256", "n": number(numbers.n), "e": number(numbers.e)}
    published = Issuer.of(NAME, {"keys": [entry, {"kty": "oct", "kid": "shared", "k": text(b"secret")}]})
    assert set(published.keys) == {"rsa"}
    account = service_account_tokens.account(signed(GOOD), published, audience=AUDIENCE, now_s=NOW)
    assert account == Account(AGENT, "team")


def test_a_public_key_is_no_shared_secret() -> None:
    pem = private()[0].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head = json.dumps({"alg": "HS256", "kid": "rsa"}).encode()
    body = f"{text(head)}.{text(json.dumps(GOOD).encode())}"
    assert whose(f"{body}.{text(hmac.digest(pem, body.encode(), 'sha256'))}") is None
