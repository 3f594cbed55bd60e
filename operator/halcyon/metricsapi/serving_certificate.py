"""Serving certificate of the operator, which is stored in a Secret.

The leader creates and renews the certificate, and all replicas use it.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from halcyon.kube import errors
from halcyon.kube.client import Kube
from halcyon.kube.clock import SYSTEM_CLOCK, Clock
from halcyon.kube.kinds import CONFIG_MAP, SECRET
from halcyon.metricsapi.auth import RequestHeaderConfig
from halcyon.metricsapi.certificates import Certificates, renewed
from halcyon.metricsapi.tls import ServingTLS

log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 30.0


class ServingCertificate:
    """Synchronisation of the certificates in the Secret with those that this replica serves."""

    def __init__(
        self,
        client: Kube,
        *,
        namespace: str,
        secret: str,
        names: tuple[str, ...],
        on_change: Callable[[], None],
        has_front_proxy: bool = True,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Create the instance. Nothing is read before `refresh` is called.

        `namespace` and `secret` are those of the Secret, and `names` the DNS names for the serving certificate.
        `on_change` is called when the CA bundle has changed. `has_front_proxy` is true if the API server can forward
        requests to this server.
        """
        self._client = client
        self._namespace, self._secret, self._names = namespace, secret, names
        self._on_change, self._has_front_proxy, self._clock = on_change, has_front_proxy, clock
        self.certificates: Certificates | None = None
        self.tls: ServingTLS | None = None
        self.front_proxy: RequestHeaderConfig | None = None
        self._is_denied = False

    async def refresh(self, *, leading: bool) -> None:
        """Read the certificates from the Secret and serve them. The leader first renews them if needed.

        Raises:
            ApiError, Unreachable: the Secret cannot be read or written; the current certificates stay in use.
        """
        secret = await self._client.get(SECRET, self._namespace, self._secret)
        if secret is None:
            text = f"Secret {self._namespace}/{self._secret} doesn't exist; the Helm chart creates it"
            raise errors.NotFound(404, text)
        stored = self._parse(secret.get("data") or {})
        if leading:
            current = renewed(stored, self._names, datetime.fromtimestamp(self._clock.wall(), UTC))
            if current != stored:
                body = {
                    "metadata": {"resourceVersion": secret["metadata"]["resourceVersion"]},
                    # Without None, the patch would keep a published CA that signs now, and rotate to it repeatedly.
                    "data": {"next-ca.crt": None, "next-ca.key": None}
                    | {k: base64.b64encode(v.encode()).decode() for k, v in current.to_secret().items()},
                }
                await self._client.patch(SECRET, self._namespace, self._secret, body)
                log.info("updated the certificates", extra={"secret": self._secret})
                stored = current
        if self._has_front_proxy:
            await self._read_front_proxy()
        if stored is not None:
            self._serve(stored)

    def _parse(self, data: dict[str, str]) -> Certificates | None:
        if not data:
            return None
        try:
            return Certificates.from_secret({k: base64.b64decode(v).decode() for k, v in data.items()})
        except ValueError as error:
            log.warning("the stored certificates are invalid", extra={"secret": self._secret, "error": str(error)})
            return None

    async def _read_front_proxy(self) -> None:
        try:
            config_map = await self._client.get(CONFIG_MAP, "kube-system", "extension-apiserver-authentication")
        except errors.Refused as error:
            # Without the permission, only the API server's own requests to the metrics API are rejected.
            if not self._is_denied:
                log.warning("the CA of the front proxy can't be read", extra={"error": str(error)})
            self._is_denied = True
            return
        self._is_denied = False
        try:
            config = RequestHeaderConfig.from_config_map((config_map or {}).get("data") or {})
        except ValueError as error:
            log.warning("the front proxy's configuration is invalid", extra={"error": str(error)})
            return
        if config != self.front_proxy:
            self.front_proxy = config
            if self.tls is not None:
                self.tls.trust(config.client_ca_pem if config else "")

    def _serve(self, certificates: Certificates) -> None:
        before = self.certificates
        if before == certificates:
            return
        pair = certificates.serving
        if self.tls is None:
            client_ca = self.front_proxy.client_ca_pem if self.front_proxy else ""
            self.tls = ServingTLS(cert_pem=pair.cert_pem, key_pem=pair.key_pem, client_ca_pem=client_ca)
        else:
            self.tls.serve(pair.cert_pem, pair.key_pem)
        self.certificates = certificates
        if before is None or before.bundle_pem != certificates.bundle_pem:
            self._on_change()
