"""TLS of the operator's site, with certificates that change while connections stay open.

A handshake uses the newest certificate and the newest CA for client certificates; open connections keep theirs. A live
SSLContext can load a new serving certificate but can't drop a CA. So each change makes a new context, and the listening
one passes every handshake to the newest.

Clients may send a certificate; only those of the request-header CA are accepted, and none if there is no such CA. `auth`
checks per request whether the CA is still valid, and whose certificate it is.
"""

from __future__ import annotations

import os
import ssl


class ServingTLS:
    """The context to listen with; its certificates can be replaced at any time."""

    def __init__(self, *, cert_pem: str, key_pem: str, client_ca_pem: str = "") -> None:
        """Serve this certificate.

        Raises:
            ssl.SSLError: certificate, key or CA are invalid, or don't match.
        """
        self._cert_pem, self._key_pem, self._client_ca_pem = cert_pem, key_pem, client_ca_pem
        self._newest = self._build_context()
        self.context = self._build_context()
        """The context to listen with."""
        self.context.sni_callback = self._select_context

    def serve(self, cert_pem: str, key_pem: str) -> None:
        """Serve this certificate from the next handshake on; on an error the old one stays.

        Raises:
            ssl.SSLError: they are invalid, or don't match.
        """
        before = self._cert_pem, self._key_pem
        self._cert_pem, self._key_pem = cert_pem, key_pem
        try:
            self._newest = self._build_context()
        except (ssl.SSLError, ValueError):
            self._cert_pem, self._key_pem = before
            raise

    def trust(self, client_ca_pem: str) -> None:
        """Accept client certificates of this CA (a bundle), and no others, from the next handshake on.

        Raises:
            ssl.SSLError: it is invalid; the old one stays.
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
        # A resumed session would keep a client certificate valid that the rotation of its CA has revoked.
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        context.verify_mode = ssl.CERT_OPTIONAL
        # The API server's front-proxy CA may be an intermediate one.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if self._client_ca_pem:
            context.load_verify_locations(cadata=self._client_ca_pem)
        # load_cert_chain only reads files; this one is in memory, so the key never touches a disk.
        file = os.memfd_create("serving", os.MFD_CLOEXEC)
        try:
            os.write(file, (self._cert_pem + "\n" + self._key_pem).encode())
            context.load_cert_chain(f"/proc/self/fd/{file}")
        finally:
            os.close(file)
        return context
