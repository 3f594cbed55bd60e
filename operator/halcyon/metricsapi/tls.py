"""The TLS side of the operator's site: certificates that change while connections stay.

A handshake takes the newest certificate and the newest CA for client certificates; connections that are open keep
theirs. A live SSLContext can take a new serving certificate but can't forget a CA, so each change makes a context, and the
listening one hands every handshake to the newest.

Clients may show a certificate; only those of the request-header CA pass, and none where there is no such CA. Whether the
CA still stands, and whose the certificate is, is checked per request in `auth`.
"""

from __future__ import annotations

import os
import ssl


class ServingTLS:
    """Gives the context to listen with, and takes new certificates at any time."""

    def __init__(self, *, cert_pem: str, key_pem: str, client_ca_pem: str = "") -> None:
        """Serves this certificate.

        Raises:
            ssl.SSLError: where certificate, key or CA are none, or don't fit together.
        """
        self._cert_pem, self._key_pem, self._client_ca_pem = cert_pem, key_pem, client_ca_pem
        self._newest = self._made()
        self.context = self._made()
        """To listen with."""
        self.context.sni_callback = self._hand_over

    def serve(self, cert_pem: str, key_pem: str) -> None:
        """Shows this certificate from the next handshake on; on an error the old one stays.

        Raises:
            ssl.SSLError: where they are none, or don't fit together.
        """
        before = self._cert_pem, self._key_pem
        self._cert_pem, self._key_pem = cert_pem, key_pem
        try:
            self._newest = self._made()
        except (ssl.SSLError, ValueError):
            self._cert_pem, self._key_pem = before
            raise

    def trust(self, client_ca_pem: str) -> None:
        """Takes client certificates of this CA (a bundle), and no others, from the next handshake on.

        Raises:
            ssl.SSLError: where it is none; the old one stays.
        """
        before, self._client_ca_pem = self._client_ca_pem, client_ca_pem
        try:
            self._newest = self._made()
        except (ssl.SSLError, ValueError):
            self._client_ca_pem = before
            raise

    def _hand_over(self, connection: ssl.SSLObject, server_name: str | None, context: ssl.SSLContext) -> None:
        del server_name, context  # called for every handshake, with or without a server name
        connection.context = self._newest

    def _made(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # A resumed session would keep a client certificate alive that its CA's rotation has ended.
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        context.verify_mode = ssl.CERT_OPTIONAL
        # The API server's front-proxy CA may be an intermediate one.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if self._client_ca_pem:
            context.load_verify_locations(cadata=self._client_ca_pem)
        # load_cert_chain reads files alone; this one lies in memory, so the key never touches a disk.
        file = os.memfd_create("serving", os.MFD_CLOEXEC)
        try:
            os.write(file, (self._cert_pem + "\n" + self._key_pem).encode())
            context.load_cert_chain(f"/proc/self/fd/{file}")
        finally:
            os.close(file)
        return context
