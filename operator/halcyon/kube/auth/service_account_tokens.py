"""Verification of ServiceAccount tokens with the API server's public keys, without a TokenReview.

TokenReview is cluster-scoped, so an operator with permissions in some namespaces only cannot create it. Limitation: the
token of a deleted pod or ServiceAccount stays valid until it expires.

PyJWT parses keys and tokens, and verifies signature, audience and issuer. This module checks the times in a token, with
the caller's clock.

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
"""Maximum difference between the clocks of two machines that is tolerated, in seconds, when the times in a token are
checked."""
MAX_CHARACTERS = 16384

_RSA: Final = ("RS256", "RS384", "RS512")
_ECDSA: Final = ("ES256", "ES384", "ES512")
_OPTIONS: Final[Any] = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "require": ["aud", "iss"]}


@dataclass(frozen=True)
class PublicKey:
    """Public key of the issuer of tokens, for verifying their signatures."""

    key: Any
    algorithms: Sequence[str]
    """Signature algorithms that are allowed for this key. They follow from the type of the key, never from a token, and
    never include `none`."""


@dataclass(frozen=True)
class Issuer:
    """Issuer of the cluster's ServiceAccount tokens."""

    name: str
    """Value of the `iss` claim in the tokens of this issuer."""
    keys: Mapping[str, PublicKey]
    """Public keys of the issuer, by key id."""

    @classmethod
    def of(cls, name: str, key_set: Mapping[str, Any]) -> Issuer:
        """Create the issuer from a JSON Web Key Set. Keys of types that API servers never sign with are skipped."""
        keys = {str(entry.get("kid")): _key(entry) for entry in key_set.get("keys") or ()}
        return cls(name, {kid: key for kid, key in keys.items() if key is not None})


@dataclass(frozen=True)
class Account:
    """ServiceAccount of a token that has been verified."""

    name: str
    """User name of the ServiceAccount, `system:serviceaccount:NAMESPACE:NAME`."""
    namespace: str
    pod: str = ""
    """Name of the pod to which the token is bound; empty if the token is bound to no pod."""


def key_id(token: str) -> str | None:
    """Return the key id in a token's header, without verifying the token. Return None if the string is not a token."""
    if len(token) > MAX_CHARACTERS:
        return None
    try:
        return str(jwt.get_unverified_header(token)["kid"])
    except (jwt.PyJWTError, ValueError, KeyError):
        return None


def account(token: str, issuer: Issuer, *, audience: str, now_s: float) -> Account | None:
    """Return the account of a token.

    Return None if the token is not valid for `audience` at `now_s` (seconds since the epoch).
    """
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
    parsed = service_account(subject)
    return None if parsed is None else Account(subject, parsed.namespace, _pod(claims))


def _pod(claims: Mapping[str, Any]) -> str:
    cluster_claims = claims.get("kubernetes.io")
    pod = cluster_claims.get("pod") if isinstance(cluster_claims, Mapping) else None
    return str(pod.get("name") or "") if isinstance(pod, Mapping) else ""


def _key(entry: Mapping[str, Any]) -> PublicKey | None:
    try:
        key = jwt.PyJWK(dict(entry))
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if key.key_type == "RSA":
        return PublicKey(key.key, _RSA)
    # For ECDSA keys, the curve determines the algorithm.
    return PublicKey(key.key, (key.algorithm_name,)) if key.algorithm_name in _ECDSA else None


def _number(value: Any) -> float:
    """Return the time in a claim of a token.

    Return NaN if it is not a number, so that every comparison with it is false.
    """
    try:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return math.nan
