"""Files for HAProxy from mounted Secrets: the server certificate, the CAs of client certificates, and the API keys.

New content of a Secret takes effect with one reload if it is valid. Otherwise the last valid certificate stays in use.
Invalid API keys are ignored, and the valid ones are used.

The name of a file contains a digest of its content, and files never change. So the running configuration, the previous
one and a restarted HAProxy always find the certificate that they refer to, and a restarted agent finds the last valid
one. A certificate in use that expires soon is reported (`certificate_expiry`).
"""

# mounted Secret                    | files so far | effect
# valid                             | any          | the new content is in use after one reload
# TLS, invalid (missing, mismatch)  | valid        | the last valid certificate stays in use; the problem is reported
# TLS, invalid                      | none         | no client can connect: HAProxy opens no client port; never plain text
# TLS, expired                      | valid        | the last valid certificate stays in use for as long as it is valid
# TLS, expired                      | none         | the expired certificate is used, and clients reject it; this is reported
# API keys, missing or invalid      | any          | only the valid keys work, possibly none; a removed key stops working

from __future__ import annotations

import hashlib
import os
import re
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from halcyon.api.documents.balancer_plan import CERTIFICATE_FOLDER, CLIENTS_FOLDER, KEYS_FOLDER
from halcyon.balancer.config import api_keys
from halcyon.balancer.config.model import TlsFiles
from halcyon.balancer.secrets import certificate_expiry
from halcyon.triton.json_log import log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from halcyon.balancer.secrets.certificate_expiry import Validity

_SHOWN_KEYS = 3
"""Maximum number of invalid API keys that a message names."""
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\n[A-Za-z0-9+/=\n]+-----END \1-----\n")


class SecretError(ValueError):
    """Error raised if the content of a Secret is invalid."""


@dataclass(frozen=True)
class SecretNames:
    """Names of the Secrets that the balancer pod mounts."""

    certificate: str = ""
    """Secret with the server certificate; empty if clients use plain text."""
    clients: str = ""
    """Secret with the CAs of client certificates; empty if clients need no certificate."""
    keys: str = ""
    """Secret with the API keys; empty if clients need no key."""


class MountedSecrets:
    """Files for HAProxy, created from the Secrets that the pod mounts."""

    def __init__(
        self, secrets: SecretNames, *, mounted: Path, config: Path, wall: Callable[[], float] = time.time
    ) -> None:
        """Adopt the files for HAProxy that a previous agent wrote. The Secrets are read only by `refresh`.

        Args:
            secrets: names of the Secrets, for messages.
            mounted: folder that contains a folder for each Secret.
            config: path of haproxy.cfg; the files are written to the same folder.
            wall: returns the time in seconds since the epoch, for the expiry of certificates.
        """
        self._mounted, self._config, self._run_dir = mounted, config, config.parent
        kinds = (
            _Kind(CERTIFICATE_FOLDER, secrets.certificate, ("tls.crt", "tls.key"), _pair, certificates="tls.crt"),
            _Kind(CLIENTS_FOLDER, secrets.clients, ("ca.crt",), _authorities, certificates="ca.crt"),
            _Kind(KEYS_FOLDER, secrets.keys, (), _keys, "map"),
        )
        self._kinds = [kind for kind in kinds if kind.secret]
        self._wall = wall
        self._served = {kind.folder: self._in_use(kind) for kind in self._kinds}
        self._certificates = {kind.folder: self._read_certificates(kind) for kind in self._kinds if kind.certificates}
        self._expiring: dict[str, str] = {}
        self._seen: dict[str, Mapping[str, bytes]] = {}
        self._links: dict[str, str] = {}
        self._problems: dict[str, str] = {}

    @property
    def tls(self) -> TlsFiles | None:
        """Certificate files that HAProxy must use; None if clients use plain text."""
        if CERTIFICATE_FOLDER not in self._served:
            return None
        certificate, clients = self._served[CERTIFICATE_FOLDER], self._served.get(CLIENTS_FOLDER)
        # Without the CAs of client certificates, HAProxy would accept any client, so it gets no certificate either.
        return TlsFiles() if not certificate or clients == "" else TlsFiles(certificate, clients or "")

    @property
    def keys(self) -> str | None:
        """Name of the file with the API key digests; None if clients need no key."""
        return self._served.get(KEYS_FOLDER)

    @property
    def digests(self) -> frozenset[str]:
        """Digests of the valid API keys; empty if clients need no key."""
        text = _read(self._run_dir / self.keys).decode() if self.keys else ""
        return frozenset(line.partition(" ")[0] for line in text.splitlines())

    @property
    def problems(self) -> str:
        """Problems of the Secrets as text, including certificates that expire soon; empty if there are none."""
        return "; ".join([*self._problems.values(), *self._expiring.values()])

    @property
    def expires(self) -> Mapping[str, float]:
        """Earliest expiry time of the certificates in use, by key of the Secret, in seconds since the epoch."""
        keys = {kind.folder: kind.certificates for kind in self._kinds}
        return {keys[folder]: min(c.ends for c in served) for folder, served in self._certificates.items() if served}

    def refresh(self) -> None:
        """Read the mounted Secrets, and write new files if they changed."""
        for kind in self._kinds:
            self._refresh_kind(kind)
            self._check_expiry(kind)

    def _refresh_kind(self, kind: _Kind) -> None:
        contents = self._changed_contents(kind)
        if contents is None:
            return
        try:
            text, problem = kind.make(contents, self._run_dir)
            self._reject_expired(kind, text)
        except SecretError as error:
            last = "the last valid one stays in use" if self._served[kind.folder] else "no connection is accepted"
            text, problem = None, f"{error}; {last}"
        self._problems.pop(kind.folder, None)
        if problem:
            self._problems[kind.folder] = f"Secret {kind.secret}: {problem}"
            log("error", "a Secret is invalid", secret=kind.secret, error=problem)
        if text is not None:
            self._served[kind.folder] = self._store(kind, text)
            if kind.certificates:
                self._certificates[kind.folder] = _validities(text)
            log("info", "wrote HAProxy's file of a Secret", secret=kind.secret, file=self._served[kind.folder])

    def _reject_expired(self, kind: _Kind, text: str) -> None:
        """Raise an error if an expired certificate would replace a valid one.

        Raises:
            SecretError: the new certificate has expired, and the current one is valid.
        """
        if not kind.certificates:
            return
        now, new, served = self._wall(), _validities(text), self._certificates[kind.folder]
        if _is_usable(kind, served, now) and new and not _is_usable(kind, new, now):
            raise SecretError(certificate_expiry.describe(kind.certificates, new, now))

    def _check_expiry(self, kind: _Kind) -> None:
        problem = certificate_expiry.describe(kind.certificates, self._certificates.get(kind.folder, ()), self._wall())
        text = f"Secret {kind.secret}, as in use: {problem}" if problem else ""
        if text and text != self._expiring.get(kind.folder):
            log("warning", "a certificate in use is invalid or expires soon", secret=kind.secret, certificate=problem)
        if text:
            self._expiring[kind.folder] = text
        else:
            self._expiring.pop(kind.folder, None)

    def _read_certificates(self, kind: _Kind) -> tuple[Validity, ...]:
        """Return the validity periods of the certificates in a file that a previous agent wrote."""
        name = self._served[kind.folder]
        return _validities(_read(self._run_dir / name).decode("ascii", errors="replace")) if name else ()

    def _changed_contents(self, kind: _Kind) -> Mapping[str, bytes] | None:
        """Return the content of the mounted Secret by key; None if it has not changed."""
        folder = self._mounted / kind.folder
        link = _link(folder)
        if link and self._links.get(kind.folder) == link:
            return None
        at = folder / link
        names = kind.keys or (path.name for path in (at.iterdir() if at.is_dir() else ()))
        contents = {name: _read(at / name) for name in names if not name.startswith("..")}
        if _link(folder) != link:
            # The Secret changed while it was read, so certificate and key may not belong together.
            return None
        self._links[kind.folder] = link
        if self._seen.get(kind.folder) == contents:
            return None
        self._seen[kind.folder] = contents
        return contents

    def _store(self, kind: _Kind, text: str) -> str:
        name = f"{kind.folder}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.{kind.ending}"
        _write(self._run_dir / (name + ".new"), text).replace(self._run_dir / name)
        # Keep the file that the running configuration names: HAProxy needs it until the next configuration is loaded, or if it rejects
        # that one.
        for old in self._run_dir.glob(f"{kind.folder}-*.{kind.ending}"):
            if old.name not in {name, self._in_use(kind)}:
                old.unlink()
        return name

    def _in_use(self, kind: _Kind) -> str:
        text = self._config.read_text() if self._config.exists() else ""
        match = re.search(rf"\b{kind.folder}-[0-9a-f]{{16}}\.{kind.ending}\b", text)
        return match[0] if match and (self._run_dir / match[0]).exists() else ""


@dataclass(frozen=True)
class _Kind:
    folder: str
    secret: str
    keys: tuple[str, ...]
    """Keys of the Secret that are used. If empty, all keys are used."""
    make: Callable[[Mapping[str, bytes], Path], tuple[str, str]]
    """Function that converts the Secret to the content of a file. It also returns a message about problems that do not
    make the Secret as a whole invalid."""
    ending: str = "pem"
    certificates: str = ""
    """Key of the Secret that contains certificates; empty if there is none."""


def _validities(text: str) -> tuple[Validity, ...]:
    """Return the validity periods of the certificates in the text; empty if they cannot be parsed.

    OpenSSL may accept certificates that `certificate_expiry` cannot parse.
    """
    try:
        return certificate_expiry.of_pem(text)
    except ValueError as error:
        log("warning", "the expiry of a certificate can't be determined", error=str(error))
        return ()


def _is_usable(kind: _Kind, certificates: tuple[Validity, ...], now: float) -> bool:
    """Return True if the certificates are valid now.

    For a server, the first certificate must be valid; for CAs, any of them.
    """
    deciding = certificates[:1] if kind.folder == CERTIFICATE_FOLDER else certificates
    return any(not certificate.is_over(now) for certificate in deciding)


def _pair(contents: Mapping[str, bytes], run_dir: Path) -> tuple[str, str]:
    """Return the certificate chain and the key as one text.

    Raises:
        SecretError: tls.crt and tls.key are not a certificate and its key.
    """
    (chain, unread), (key, unread_key) = (_blocks(name, contents[name]) for name in ("tls.crt", "tls.key"))
    # OpenSSL can load certificate and key only from a file.
    trial = _write(run_dir / "certificate.try", chain + key)
    try:
        # Pass a wrong password, so that OpenSSL does not prompt for one if the key is encrypted.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(trial, password=lambda: "-")
    except (ssl.SSLError, OSError, ValueError) as error:
        raise SecretError(f"tls.crt and tls.key are not a certificate and its key: {_words(error)}") from error
    finally:
        trial.unlink()
    return chain + key, unread or unread_key


def _keys(contents: Mapping[str, bytes], _: Path) -> tuple[str, str]:
    text, problems = api_keys.digests(contents)
    # The first sentences are shown; a report to the operator that contains thousands of them is rejected.
    shown = [] if text else ["there is no valid API key, so every request is rejected"]
    shown += problems[:_SHOWN_KEYS]
    if len(problems) > _SHOWN_KEYS:
        shown.append(f"{len(problems) - _SHOWN_KEYS} more keys are not valid")
    return text, "; ".join(shown)


def _authorities(contents: Mapping[str, bytes], _: Path) -> tuple[str, str]:
    text, unread = _blocks("ca.crt", contents["ca.crt"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise SecretError(f"ca.crt is not a certificate: {_words(error)}") from error
    if not context.get_ca_certs():
        raise SecretError("ca.crt contains no CA certificate")
    return text, unread


def _blocks(key: str, content: bytes) -> tuple[str, str]:
    """Return the PEM blocks in the content, without other text, and a message about those that can't be read.

    Spaces at the end of a line are ignored, as by OpenSSL.

    Raises:
        SecretError: the key is missing, or its content is not PEM.
    """
    if not content:
        raise SecretError(f"key {key} is missing; kubectl describe secret lists the keys")
    text = re.sub(r"[ \t\r]+\n", "\n", content.decode("ascii", errors="replace").rstrip() + "\n")
    blocks = [match[0] for match in _BLOCK.finditer(text)]
    unread = text.count("-----BEGIN ") - len(blocks)
    if not blocks:
        cause = (
            " that can be read: it is truncated, or a key is encrypted" if unread else "; it must begin with -----BEGIN"
        )
        raise SecretError(f"{key} is not PEM{cause}")
    problem = (
        f"{key} has {unread + len(blocks)} PEM blocks, and {unread} can't be read and are left out"
        if unread > 0
        else ""
    )
    return "".join(blocks), problem


def _words(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error)


def _link(folder: Path) -> str:
    """Return the target of the link to the Secret's data folder. The kubelet switches it to update all keys at once."""
    try:
        return str((folder / "..data").readlink())
    except OSError:
        return ""


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _write(path: Path, text: str) -> Path:
    """Write a file that only this user may read or write, and return its path.

    The permissions are set when the file is created.
    """
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    return path
