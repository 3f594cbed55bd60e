"""Verification of service-account tokens with the API server's public keys, for an operator that may not create a TokenReview.

A TokenReview is cluster-scoped, so an operator with permissions in some namespaces only can't create one. A limitation: the token of a
pod or an account that has since been deleted stays valid until it expires.

Sources: RFC 7515 and 7518 (signatures), RFC 7519 (claims), Kubernetes' "Service account issuer discovery".
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512, HashAlgorithm

from halcyon.kube.auth.callers import service_account

MAX_CLOCK_SKEW_S = 10.0
"""Maximum difference between the clocks of two machines."""
MAX_CHARACTERS = 16384

_RSA: dict[str, HashAlgorithm] = {"RS256": SHA256(), "RS384": SHA384(), "RS512": SHA512()}
_ECDSA: dict[str, tuple[HashAlgorithm, type[ec.EllipticCurve]]] = {
    "ES256": (SHA256(), ec.SECP256R1),
    "ES384": (SHA384(), ec.SECP384R1),
    "ES512": (SHA512(), ec.SECP521R1),
}
_CURVES: dict[str, type[ec.EllipticCurve]] = {"P-256": ec.SECP256R1, "P-384": ec.SECP384R1, "P-521": ec.SECP521R1}

Key = rsa.RSAPublicKey | ec.EllipticCurvePublicKey


@dataclass(frozen=True)
class Issuer:
    """The signer of a cluster's tokens."""

    name: str
    """The claim `iss`."""
    keys: Mapping[str, Key]
    """Keys by id."""

    @classmethod
    def of(cls, name: str, key_set: Mapping[str, Any]) -> Issuer:
        """Create the issuer from a JSON Web Key Set; keys of kinds that no API server signs with are left out."""
        keys = {str(entry.get("kid")): _key(entry) for entry in key_set.get("keys") or ()}
        return cls(name, {kid: key for kid, key in keys.items() if key is not None})


@dataclass(frozen=True)
class Account:
    """The service account of a token."""

    name: str
    """`system:serviceaccount:NAMESPACE:NAME`."""
    namespace: str


def key_id(token: str) -> str | None:
    """Return the id of the key that a token claims to be signed with; None if it is no token."""
    if len(token) > MAX_CHARACTERS:
        return None
    try:
        return str(_json(token.partition(".")[0])["kid"])
    except (ValueError, KeyError):
        return None


def account(token: str, issuer: Issuer, *, audience: str, now_s: float) -> Account | None:
    """Return the account of a token that is valid for `audience` at `now_s` (seconds since 1970), else None."""
    claims = _verified(token, issuer)
    if claims is None or claims.get("iss") != issuer.name:
        return None
    given = claims.get("aud")
    audiences: Sequence[Any] = given if isinstance(given, list) else [given]
    begins_s, ends_s, subject = _number(claims.get("nbf", 0)), _number(claims.get("exp")), claims.get("sub")
    if audience not in audiences or not begins_s - MAX_CLOCK_SKEW_S <= now_s < ends_s + MAX_CLOCK_SKEW_S:
        return None
    if not isinstance(subject, str) or (known := service_account(subject)) is None:
        return None
    return Account(subject, known.namespace)


def _verified(token: str, issuer: Issuer) -> Mapping[str, Any] | None:
    """Return the claims if the signature is the issuer's. The kind of key determines the algorithms, and `none` is not one."""
    if len(token) > MAX_CHARACTERS:
        return None
    try:
        head, body, signature = token.split(".")
        header = _json(head)
        key = issuer.keys.get(str(header.get("kid")))
        _check(key, header.get("alg"), f"{head}.{body}".encode(), _bytes(signature))
        return _json(body)
    except (ValueError, InvalidSignature):
        return None


def _check(key: Key | None, algorithm: Any, signed: bytes, signature: bytes) -> None:
    if isinstance(key, rsa.RSAPublicKey) and algorithm in _RSA:
        key.verify(signature, signed, padding.PKCS1v15(), _RSA[algorithm])
    elif isinstance(key, ec.EllipticCurvePublicKey) and algorithm in _ECDSA:
        digest, curve = _ECDSA[algorithm]
        size = (key.curve.key_size + 7) // 8
        if not isinstance(key.curve, curve) or len(signature) != 2 * size:
            raise InvalidSignature
        numbers = (int.from_bytes(signature[:size]), int.from_bytes(signature[size:]))
        key.verify(encode_dss_signature(*numbers), signed, ec.ECDSA(digest))
    else:
        raise InvalidSignature


def _key(entry: Mapping[str, Any]) -> Key | None:
    try:
        if entry.get("kty") == "RSA":
            return rsa.RSAPublicNumbers(_integer(entry["e"]), _integer(entry["n"])).public_key()
        if entry.get("kty") == "EC" and entry.get("crv") in _CURVES:
            curve = _CURVES[entry["crv"]]()
            return ec.EllipticCurvePublicNumbers(_integer(entry["x"]), _integer(entry["y"]), curve).public_key()
    except (KeyError, ValueError):
        return None
    return None


def _integer(text: Any) -> int:
    return int.from_bytes(_bytes(str(text)))


def _json(text: str) -> Mapping[str, Any]:
    try:
        document = json.loads(_bytes(text))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(document, dict):
        raise ValueError("no JSON object")  # noqa: TRY004  # it is the text that is wrong
    return document


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError("no base64url") from error


def _number(value: Any) -> float:
    """Return a time in a claim; if it is none, NaN, which is neither before nor after any time."""
    try:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return math.nan
