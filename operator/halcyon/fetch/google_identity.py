"""Access tokens of Google Cloud in exchange for the token of a Kubernetes service account (workload identity federation).

The token is exchanged at Google's Security Token Service (RFC 8693), and then optionally with `generateAccessToken` of
the IAM Credentials API (https://cloud.google.com/iam/docs/workload-identity-federation-with-kubernetes).
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from halcyon.api.authorities import accept_as_they_are
from halcyon.api.documents.store_identity import StoreIdentity
from halcyon.fetch.errors import StoreError

_READING, _WRITING = (f"https://www.googleapis.com/auth/devstorage.{scope}" for scope in ("read_only", "read_write"))
_TIMEOUT_S = 30
_MAX_ANSWER_BYTES = 64 * 1024


class GoogleTokens:
    """Source of access tokens, as a callable that obstore accepts as `credential_provider`."""

    def __init__(
        self, identity: StoreIdentity, token_file: Path, proxy: str, ca: str | None, *, writes: bool = False
    ) -> None:
        """Create a source of access tokens for Google Cloud Storage.

        Args:
            identity: identity with the cloud `google`.
            token_file: file with the service account's token, which the kubelet renews.
            proxy: URL of the proxy for all requests.
            ca: additional CA certificates (PEM); None if there are none.
            writes: whether the tokens must allow writing.
        """
        self._scope = _WRITING if writes else _READING
        self._identity = identity
        self._token_file = token_file
        context = ssl.create_default_context()
        if ca is not None:
            accept_as_they_are(context).load_verify_locations(cadata=ca)
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({"http": proxy, "https": proxy}), urllib.request.HTTPSHandler(context=context)
        )

    def __call__(self) -> dict[str, Any]:
        """Return a token and the time at which it expires.

        Raises:
            StoreError: a token service denies the token or cannot be reached.
        """
        server, *impersonation = self._identity.servers("")
        answer = self._post(
            f"{server}/v1/token",
            {
                "grantType": "urn:ietf:params:oauth:grant-type:token-exchange",
                "audience": self._identity.audience,
                "scope": "https://www.googleapis.com/auth/cloud-platform" if impersonation else self._scope,
                "requestedTokenType": "urn:ietf:params:oauth:token-type:access_token",
                "subjectTokenType": "urn:ietf:params:oauth:token-type:jwt",
                "subjectToken": self._token_file.read_text().strip(),
            },
        )
        token = answer["access_token"]
        expires = datetime.now(UTC) + timedelta(seconds=int(answer["expires_in"]))
        for server in impersonation:
            url = f"{server}/v1/projects/-/serviceAccounts/{self._identity.also}:generateAccessToken"
            answer = self._post(url, {"scope": [self._scope]}, token)
            token, expires = answer["accessToken"], datetime.fromisoformat(answer["expireTime"])
        return {"token": token, "expires_at": expires}

    def _post(self, url: str, body: dict[str, Any], bearer: str | None = None) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {bearer}"} if bearer else {})
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)  # noqa: S310  # servers() returns only http and https
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                document: dict[str, Any] = json.loads(answer.read(_MAX_ANSWER_BYTES))
                return document
        except urllib.error.HTTPError as error:
            detail = " ".join(error.read(_MAX_ANSWER_BYTES).decode(errors="replace").split())[:300]
            raise StoreError(f"{url} answered {error.code}: {detail}") from error
        except (OSError, ValueError) as error:
            raise StoreError(f"{url}: {getattr(error, 'reason', error)}") from error
