"""TLS of the operator's port, with certificates that can be replaced while connections are open.

A handshake uses the newest serving certificate and the newest CA for client certificates; open connections are not
affected. An SSLContext in use can load a new serving certificate but cannot remove a CA. Therefore each change creates
a new context, and the listening context switches every handshake to the newest one.

A client certificate is optional, and must be from the request-header CA; if there is no such CA, none is accepted. For
each request, `auth` checks whether the CA is still valid and which client the certificate belongs to.
"""

from __future__ import annotations

import os
import ssl


class ServingTLS:
    """TLS context for listening, whose certificates can be replaced at any time."""

    def __init__(self, *, cert_pem: str, key_pem: str, client_ca_pem: str = "") -> None:
        """Create the context with this certificate.

        Raises:
            ssl.SSLError: the certificate, the key or the CA is invalid, or certificate and key do not match.
        """
        self._cert_pem, self._key_pem, self._client_ca_pem = cert_pem, key_pem, client_ca_pem
        self._newest = self._build_context()
        self.context = self._build_context()
        """TLS context for the listening sockets."""
        self.context.sni_callback = self._select_context

    def serve(self, cert_pem: str, key_pem: str) -> None:
        """Use this certificate for the next and all later handshakes.

        Raises:
            ssl.SSLError: certificate or key is invalid, or they do not match. The old certificate then stays in use.
        """
        before = self._cert_pem, self._key_pem
        self._cert_pem, self._key_pem = cert_pem, key_pem
        try:
            self._newest = self._build_context()
        except (ssl.SSLError, ValueError):
            self._cert_pem, self._key_pem = before
            raise

    def trust(self, client_ca_pem: str) -> None:
        """Accept only client certificates from the CAs in this bundle.

        This applies to the next and all later handshakes.

        Raises:
            ssl.SSLError: the bundle is invalid. The old bundle then stays in use.
        """
        before, self._client_ca_pem = self._client_ca_pem, client_ca_pem
        try:
            self._newest = self._build_context()
        except (ssl.SSLError, ValueError):
            self._client_ca_pem = before
            raise

    def _select_context(self, connection: ssl.SSLObject, server_name: str | None, context: ssl.SSLContext) -> None:
        del server_name, context  # called for every handshake, with or without a server name
        connection.context = self._newest

    def _build_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # No session tickets: a resumed session would still accept a client certificate after its CA was removed.
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        context.verify_mode = ssl.CERT_OPTIONAL
        # The API server's front-proxy CA may be an intermediate one.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if self._client_ca_pem:
            context.load_verify_locations(cadata=self._client_ca_pem)
        # load_cert_chain reads only files. This file is in memory, so that the key is never written to a disk.
        file = os.memfd_create("serving", os.MFD_CLOEXEC)
        try:
            os.write(file, (self._cert_pem + "\n" + self._key_pem).encode())
            context.load_cert_chain(f"/proc/self/fd/{file}")
        finally:
            os.close(file)
        return context
