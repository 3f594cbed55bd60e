"""Requests to an API server with the credentials of a kubeconfig. Out of scope: their contents (`client`, `tunnel`)."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from http import HTTPStatus
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import InsecureRequestWarning

from halcyon_cli.kube.kubeconfig import Access, ExecPlugin, KubeconfigError


@dataclass
class Transport:
    """Connections to one API server."""

    access: Access
    _expires: datetime | None = None
    """Expiry time of the plugin's credentials; None if they don't expire, or if there are none yet."""
    _plugin_access: Access | None = None
    """Access settings with the plugin's credentials; None until the plugin has run."""

    def headers(self) -> urllib3.HTTPHeaderDict:
        """Return the headers that authenticate a request.

        A credential plugin runs before the first request, and again after its credentials have expired.

        Raises:
            KubeconfigError: the plugin failed, or the token's file can't be read.
        """
        access = self._authenticated()
        token = access.token
        if isinstance(token, Path):
            try:
                token = token.read_text().strip()
            except OSError as error:
                raise KubeconfigError(f"the token can't be read: {error}") from None
        # http.client encodes headers as Latin-1, and the API server reads them as UTF-8.
        headers = urllib3.HTTPHeaderDict(
            [(name, value.encode().decode("latin-1")) for name, value in access.impersonated]
        )
        if token and not (token.isascii() and token.isprintable()):
            raise KubeconfigError("users[].user.token has characters that no token has, for example a line break")
        if token:
            headers["Authorization"] = f"Bearer {token}"
        elif access.basic is not None:
            headers["Authorization"] = "Basic " + base64.b64encode(":".join(access.basic).encode()).decode()
        return headers

    def send(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout: urllib3.Timeout,
    ) -> urllib3.BaseHTTPResponse:
        """Send a request, and return the response. Its body isn't read yet.

        If the API server rejects credentials that a plugin printed for an earlier request, the plugin runs again, as in
        kubectl. Not every plugin reports when its credentials expire.

        Raises:
            urllib3.exceptions.HTTPError, OSError: there was no response.
            KubeconfigError: the credentials can't be used.
        """
        had_credentials = self._plugin_access is not None
        response = self._send(method, path, headers, body, timeout)
        if response.status == HTTPStatus.UNAUTHORIZED and had_credentials:
            response.close()
            self._expires = datetime.now(UTC)
            response = self._send(method, path, headers, body, timeout)
        return response

    def _send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None,
        body: bytes | None,
        timeout: urllib3.Timeout,
    ) -> urllib3.BaseHTTPResponse:
        all_headers = self.headers()
        all_headers.update(headers or {})
        return self.pool.request(
            method,
            f"{self.access.server}{path}",
            headers=all_headers,
            body=body,
            preload_content=False,
            retries=False,
            timeout=timeout,
        )

    @cached_property
    def pool(self) -> urllib3.PoolManager:
        """Connection pool, which uses the proxy if there is one."""
        settings: dict[str, Any] = {"num_pools": 1, "maxsize": 8}
        if self.encrypted:
            settings |= {"ssl_context": self.tls, "server_hostname": self.access.server_name}
            if not self.access.verified:
                urllib3.disable_warnings(InsecureRequestWarning)
        proxy = self.proxy
        return urllib3.PoolManager(**settings) if proxy is None else urllib3.ProxyManager(proxy, **settings)

    @property
    def encrypted(self) -> bool:
        """Whether the server uses TLS."""
        return self.access.server.startswith("https://")

    @property
    def proxy(self) -> str | None:
        """URL of the proxy, from the kubeconfig or else from the environment; None if there is none.

        NO_PROXY applies only to a proxy from the environment, as in kubectl.
        """
        server = urlsplit(self.access.server)
        url = self.access.proxy or ("" if _is_direct(server) else getproxies().get(server.scheme))
        return f"http://{url}" if url and "://" not in url else url or None

    @cached_property
    def tls(self) -> ssl.SSLContext:
        """TLS settings with the cluster's authorities and the client's certificate.

        Raises:
            KubeconfigError: a certificate or key is invalid.
        """
        # As kubectl: not strict about extensions, which the authorities of many clusters lack.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        access = self._authenticated()
        try:
            if not access.verified:
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            elif isinstance(access.ca, Path):
                context.load_verify_locations(cafile=access.ca)
            elif access.ca is not None:
                context.load_verify_locations(cadata=access.ca)
            else:
                context.load_default_certs()
            if access.certificate is not None:
                _load_certificate(context, access.certificate, access.key)
        except (OSError, ValueError) as error:
            raise KubeconfigError(f"its certificates can't be used: {error}") from None
        return context

    def _authenticated(self) -> Access:
        plugin = self.access.plugin
        if plugin is None:
            return self.access
        if self._plugin_access is None or (self._expires is not None and self._expires <= datetime.now(UTC)):
            renewed = self._plugin_access is not None
            self._plugin_access, self._expires = _run(plugin, self.access)
            if renewed and self._plugin_access.certificate is not None:
                for attribute in ("tls", "pool"):
                    self.__dict__.pop(attribute, None)
        return self._plugin_access


def _is_direct(server: SplitResult) -> bool:
    """Return whether requests to a server bypass the proxy from the environment.

    The rules are those of Go programs, such as kubectl. Python's own rules don't support networks and wildcards, and
    don't exempt localhost.
    """
    host = server.hostname or ""
    if host == "localhost" or proxy_bypass(server.netloc):
        return True
    entries = [entry.strip() for entry in getproxies().get("no", "").split(",")]
    try:
        address = ip_address(host)
    except ValueError:
        return host.endswith(tuple(entry.removeprefix("*").lower() for entry in entries if entry.startswith("*.")))
    return address.is_loopback or any(address in network for network in _networks(entries))


def _networks(entries: Iterable[str]) -> Iterator[IPv4Network | IPv6Network]:
    for entry in entries:
        with contextlib.suppress(ValueError):
            yield ip_network(entry.strip("[]"), strict=False)


def _load_certificate(context: ssl.SSLContext, certificate: bytes | Path, key: bytes | Path | None) -> None:
    """Load a client certificate into a TLS context.

    Python reads certificates only from files, so certificate data are written to a private temporary file.
    """
    parts = [part.read_bytes() if isinstance(part, Path) else part for part in (certificate, key) if part is not None]
    with tempfile.NamedTemporaryFile(prefix="halcyon-") as file:  # readable by this user alone
        file.write(b"\n".join(parts))
        file.flush()
        context.load_cert_chain(file.name)


def _run(plugin: ExecPlugin, access: Access) -> tuple[Access, datetime | None]:
    """Run a credential plugin, and return the access settings with its credentials, and their expiry time.

    Raises:
        KubeconfigError: the plugin can't be run, failed, or didn't print credentials.
    """
    interactive = plugin.interactive and sys.stdin.isatty()
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.cluster is not None:
        spec["cluster"] = plugin.cluster
    request = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    environment = {**os.environ, **dict(plugin.environment), "KUBERNETES_EXEC_INFO": json.dumps(request)}
    try:
        completed = subprocess.run(  # noqa: S603  # the kubeconfig is trusted, as kubectl trusts it
            [plugin.command, *plugin.arguments],
            env=environment,
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=False,
        )
    except OSError as error:
        hint = f"; {plugin.install_hint}" if plugin.install_hint else "; install it, or choose another context"
        raise KubeconfigError(f"the credential plugin {plugin.command} can't be run: {error.strerror}{hint}") from None
    if completed.returncode:
        raise KubeconfigError(f"the credential plugin {plugin.command} failed with exit status {completed.returncode}")
    try:
        status = json.loads(completed.stdout)["status"]
        expires = status.get("expirationTimestamp")
        expires_at = datetime.fromisoformat(expires) if expires else None
        certificate, key, token = (status.get(name) for name in ("clientCertificateData", "clientKeyData", "token"))
        return (
            replace(
                access,
                token="".join(token) if token else access.token,  # not of a number
                certificate=certificate.encode() if certificate else access.certificate,
                key=key.encode() if key else access.key,
            ),
            expires_at if expires_at is None or expires_at.tzinfo else expires_at.replace(tzinfo=UTC),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KubeconfigError(f"the credential plugin {plugin.command} printed no ExecCredential: {error!r}") from None
