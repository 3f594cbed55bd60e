"""Values of the credentials Secret and CA certificates, as text files of any editor contain them.

Editors add a byte order mark, blanks, line ends of Windows, or comments in any language. Content that can't be used is an error that
names the key. Otherwise a client would use it, and fail with a message about another cause.
"""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Final

from halcyon.fetch import stores
from halcyon.fetch.errors import StoreError
from halcyon.fetch.registry import hugging_face

CA: Final = "ca.crt"
"""Key of the Secret, and of the site's ConfigMap, that contains CA certificates in PEM."""
_KEYS: Final = (*stores.SECRET_KEYS, hugging_face.TOKEN, "authorization", CA)
_ONE_LINE: Final = frozenset(_KEYS) - {CA, stores.GOOGLE}
_CERTIFICATE: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]*CERTIFICATE)-----.*?-----END \1-----", re.DOTALL)


def read(secret: Path | None, site_ca: Path | None, *, field: str = "spec.model.source") -> dict[str, str]:
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
                f"downloads.caConfigMap names must exist in the namespace of the pod, with the key {CA}"
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
