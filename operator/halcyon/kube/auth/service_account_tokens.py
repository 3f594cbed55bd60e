"""Verification of service-account tokens with the API server's public keys, for an operator that may not create a TokenReview.

A TokenReview is cluster-scoped, so an operator with permissions in some namespaces only can't create one. A limitation: the token of a
pod or an account that has since been deleted stays valid until it expires.

PyJWT reads keys and tokens and verifies signatures, audience and issuer. The times are checked here, by the caller's clock.

Sources: RFC 7515 and 7518 (signatures), RFC 7519 (claims), Kubernetes' "Service account issuer discovery".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jwt

from halcyon.kube.auth.callers import service_account

MAX_CLOCK_SKEW_S = 10.0
"""Maximum difference between the clocks of two machines."""
MAX_CHARACTERS = 16384

_RSA: Final = ("RS256", "RS384", "RS512")
_ECDSA: Final = ("ES256", "ES384", "ES512")
_OPTIONS: Final[Any] = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "require": ["aud", "iss"]}


@dataclass(frozen=True)
class PublicKey:
    """A key of the issuer."""

    key: Any
    algorithms: Sequence[str]
    """Algorithms that its kind allows: never what a token names, and never `none`."""


@dataclass(frozen=True)
class Issuer:
    """The signer of a cluster's tokens."""

    name: str
    """The claim `iss`."""
    keys: Mapping[str, PublicKey]
    """Keys by id."""

    @classmethod
    def of(cls, name: str, key_set: Mapping[str, Any]) -> Issuer:
        """Create the issuer from a JSON Web Key Set; keys of types that API servers never sign with are skipped."""
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
        return str(jwt.get_unverified_header(token)["kid"])
    except (jwt.PyJWTError, ValueError, KeyError):
        return None


def account(token: str, issuer: Issuer, *, audience: str, now_s: float) -> Account | None:
    """Return the account of a token that is valid for `audience` at `now_s` (seconds since 1970), else None."""
    key = issuer.keys.get(str(key_id(token)))
    if key is None:
        return None
    try:
        claims = jwt.decode(
            token, key.key, algorithms=key.algorithms, audience=audience, issuer=issuer.name, options=_OPTIONS
        )
    except (jwt.PyJWTError, ValueError):
        return None
    begins_s, ends_s, subject = _number(claims.get("nbf", 0)), _number(claims.get("exp")), claims.get("sub")
    if not begins_s - MAX_CLOCK_SKEW_S <= now_s < ends_s + MAX_CLOCK_SKEW_S or not isinstance(subject, str):
        return None
    known = service_account(subject)
    return None if known is None else Account(subject, known.namespace)


def _key(entry: Mapping[str, Any]) -> PublicKey | None:
    try:
        found = jwt.PyJWK(dict(entry))
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if found.key_type == "RSA":
        return PublicKey(found.key, _RSA)
    # The curve determines the algorithm.
    return PublicKey(found.key, (found.algorithm_name,)) if found.algorithm_name in _ECDSA else None


def _number(value: Any) -> float:
    """Return a time in a claim; if it is none, NaN, which is neither before nor after any time."""
    try:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return math.nan
