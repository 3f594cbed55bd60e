"""Clients of the object stores: S3, Google Cloud Storage and Azure Blob Storage, with the keys of a Secret or an identity.

The keys and CA certificates are read as text files of any editor contain them, with a byte order mark, blanks, line ends
of Windows, or comments. Content that can't be used is an error that names the key. Otherwise a client would use it, and
fail with a message about another cause.

A client without keys does not sign its requests. Otherwise the library would request the node's credentials from the cloud's metadata
service. Out of scope: connections (`egress_proxy`) and the download itself (`download`).
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

import obstore
from obstore import exceptions
from obstore.store import AzureStore, GCSStore, S3Store

from halcyon.api.documents.store_identity import StoreIdentity
from halcyon.fetch.errors import StoreError
from halcyon.fetch.google_identity import GoogleTokens
from halcyon.fetch.registry import hugging_face

BucketStore = S3Store | GCSStore | AzureStore


@dataclass(frozen=True)
class Exchange:
    """Exchange of the token of the pod's service account for credentials of a store."""

    identity: StoreIdentity
    token: Path
    """File with the service account's token."""
    proxy: str
    """URL of the proxy for all requests."""
    ca: str | None = None
    """Additional CA certificates (PEM); None if there are none."""


Keys = Mapping[str, str] | Exchange
"""Source of credentials: the content of the credentials Secret, or a token exchange, which needs no Secret."""

_AWS = {
    "access_key_id": "AWS_ACCESS_KEY_ID",
    "secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
}
_GOOGLE, _AZURE_KEY, _AZURE_SAS = "GOOGLE_SERVICE_ACCOUNT_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN"
SECRET_KEYS = (*_AWS.values(), _GOOGLE, _AZURE_KEY, _AZURE_SAS)
"""Keys of the credentials Secret that this module reads."""
CA: Final = "ca.crt"
"""Key of the Secret, and of the site's ConfigMap, that contains CA certificates in PEM."""
_KEYS: Final = (*SECRET_KEYS, hugging_face.TOKEN, "authorization", CA)
_ONE_LINE: Final = frozenset(_KEYS) - {CA, _GOOGLE}
_CERTIFICATE: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]*CERTIFICATE)-----.*?-----END \1-----", re.DOTALL)
NEEDED = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": _GOOGLE,
    "az": f"{_AZURE_KEY} or {_AZURE_SAS}",
    "hf": hugging_face.TOKEN,
}
"""Keys that a Secret must have for signing requests, by URI scheme. Error messages name them."""

_MIN_SECRET_CHARS = 4
"""Minimum length of a secret value that is masked in messages. Shorter values are empty or placeholders such as `-`,
which occur in any text.
"""
_MIN_LONG_SECRET_CHARS = 8
"""Minimum length of a secret value that is masked even inside a word. A shorter value may be part of ordinary words."""


def bucket(
    url: str,
    server: str,
    region: str,
    keys: Keys,
    clients: Mapping[str, Any],
    *,
    field: str = "spec.model.source",
    writes: bool = False,
) -> BucketStore:
    """Return a client of the bucket in `url`.

    Args:
        url: URI of the model or data set: `s3://`, `gs://` or `az://`.
        server: URL of the store.
        region: region of an S3 bucket.
        keys: content of the credentials Secret, or an exchange of tokens.
        clients: further options of obstore: proxy, timeouts and retries.
        field: name of the field that contains the URI, for error messages.
        writes: whether the client also writes. If it doesn't, tokens from Google permit only reading.

    Raises:
        StoreError: the keys are not valid.
    """
    parts = urlsplit(url)
    config: dict[str, Any]
    store: type[BucketStore]
    more: dict[str, Any] = {}
    if parts.scheme == "gs":
        store, config = GCSStore, {"base_url": server}
        if isinstance(keys, Exchange):
            more["credential_provider"] = GoogleTokens(keys.identity, keys.token, keys.proxy, keys.ca, writes=writes)
        else:
            config |= _google(keys, field)
    elif parts.scheme == "az":
        # The account is needed to sign requests. In Azure, it is the first part of the host.
        account = (urlsplit(server).hostname or "").partition(".")[0]
        store, config = AzureStore, {"endpoint": server, "account_name": account} | _azure(keys)
    else:
        store, config = S3Store, {"region": region, "endpoint": server} | _aws(keys, region)
    try:
        return store(parts.netloc, config=cast("Any", config), **clients, **more)
    except (exceptions.BaseError, ValueError) as error:
        # The library's message may quote the key, in a form that would not be masked.
        if isinstance(keys, Exchange):
            raise StoreError(f"{url}: {field}.credentials.identity is invalid: {error}") from error
        raise StoreError(
            f"{url}: the Secret that {field}.credentials.secretName names has an invalid {NEEDED[parts.scheme]}; "
            "create it again from the value or the file that the store issued"
        ) from error


def secret_values(secret: Path | None, site_ca: Path | None, *, field: str = "spec.model.source") -> dict[str, str]:
    """Return the values of the known keys of the Secret. The value of `CA` also has the CA certificates of the site.

    Args:
        secret: folder with a file for each key of the Secret; None if there is no Secret.
        site_ca: file with the CA certificates of the site; None if there is none.
        field: name of the field with the URI, for error messages.

    Raises:
        StoreError: a value or a file can't be used.
    """
    place = f"of the Secret that {field}.credentials.secretName names"
    files = {} if secret is None else {name: secret / name for name in _KEYS if (secret / name).is_file()}
    values = {name: _text(file.read_bytes(), f"the key {name} {place}") for name, file in files.items()}
    for name in values.keys() & _ONE_LINE:
        if not values[name].isprintable():
            raise StoreError(
                f"the key {name} {place} has several lines or control characters; write only the value there, in one line"
            )
    authorities = _certificates(values.pop(CA, ""), f"the key {CA} {place}")
    if site_ca is not None:
        site = f"the ConfigMap that the chart's downloads.caConfigMap names, key {CA},"
        try:
            content = site_ca.read_bytes()
        except OSError as error:
            raise StoreError(
                f"the CA certificates of the site can't be read: {error.strerror}; the ConfigMap that the chart's "
                f"downloads.caConfigMap names must exist in the model's namespace, with the key {CA}"
            ) from error
        authorities = _certificates(_text(content, site), site) + authorities
    return values | ({CA: authorities} if authorities else {})


def _text(content: bytes, place: str) -> str:
    try:
        return content.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise StoreError(
            f"{place} is not text in UTF-8; PowerShell writes UTF-16 by default, so write the file with -Encoding ascii"
        ) from error


def _certificates(text: str, place: str) -> str:
    """Return the certificates in a text, without comments, which some clients accept only in ASCII.

    Raises:
        StoreError: the text contains no certificates, or one that is not valid.
    """
    if not text:
        return ""
    certificates = "".join(match[0] + "\n" for match in _CERTIFICATE.finditer(text))
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError, TypeError) as error:
        raise StoreError(
            f"{place} has no CA certificates, or one that is not valid; it must contain certificates in PEM, which begin "
            "with -----BEGIN CERTIFICATE-----"
        ) from error
    return certificates


def is_object(store: BucketStore, key: str) -> bool:
    """Return whether a bucket has a nonempty object with this key; False if the store denies access."""
    try:
        return obstore.head(store, key)["size"] > 0
    except (exceptions.BaseError, FileNotFoundError):
        return False


def without_signature(text: str) -> str:
    """Return the text without the signature of a shared access signature (SAS), which Azure's clients send in the query."""
    return re.sub(r"\bsig=[^&\s)\"']+", "sig=***", text)


def masked(text: str, secrets: Iterable[str]) -> str:
    """Return the text with secret values masked.

    Longer values are masked first, because a shorter value may be part of a longer one.
    """
    text = without_signature(text)
    values = sorted({value for value in secrets if len(value) >= _MIN_SECRET_CHARS}, key=len, reverse=True)
    if not values:
        return text
    patterns = (re.escape(v) if len(v) >= _MIN_LONG_SECRET_CHARS else rf"(?<!\w){re.escape(v)}(?!\w)" for v in values)
    return re.sub("|".join(patterns), "***", text)


def _aws(secrets: Keys, region: str) -> dict[str, Any]:
    if isinstance(secrets, Exchange):
        (server,) = secrets.identity.servers(region)
        return {
            "web_identity_token_file": str(secrets.token),
            "role_arn": secrets.identity.name,
            "role_session_name": "halcyon",
            "aws_endpoint_url_sts": server,
        }
    if "AWS_ACCESS_KEY_ID" in secrets and "AWS_SECRET_ACCESS_KEY" in secrets:
        return {name: secrets[key] for name, key in _AWS.items() if key in secrets}
    return {"skip_signature": True}


def _google(secrets: Mapping[str, str], field: str) -> dict[str, Any]:
    if _GOOGLE not in secrets:
        return {"skip_signature": True}
    try:
        key = json.loads(secrets[_GOOGLE])
        key_fields = {name: key[name] for name in ("private_key", "private_key_id", "client_email")}
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(
            f"the key {_GOOGLE} of the Secret that {field}.credentials.secretName names is not the key file (JSON) of a "
            "service account, with private_key, private_key_id and client_email; put the content of that file there, for example "
            f"kubectl create secret generic models-gs --from-file={_GOOGLE}=key.json"
        ) from error
    # The other fields are left out, because some of them change the servers to which the library connects.
    return {"service_account_key": json.dumps(key_fields)}


def _azure(secrets: Keys) -> dict[str, Any]:
    if isinstance(secrets, Exchange):
        (server,) = secrets.identity.servers("")
        return {
            "federated_token_file": str(secrets.token),
            "client_id": secrets.identity.name,
            "tenant_id": secrets.identity.also,
            "authority_host": server,
        }
    if _AZURE_KEY in secrets:
        return {"account_key": secrets[_AZURE_KEY]}
    if _AZURE_SAS in secrets:
        return {"sas_key": secrets[_AZURE_SAS].removeprefix("?")}
    return {"skip_signature": True}
