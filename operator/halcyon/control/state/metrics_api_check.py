"""Check of two properties of the cluster, which decide whether an HPA can scale a model.

The server behind the API external.metrics.k8s.io must be this operator, and the API server must keep the field
`tolerance` of HPAs, which older ones drop.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from halcyon.kube import errors
from halcyon.kube.client import Kube
from halcyon.metricsapi import api_service
from halcyon.metricsapi.api_service import ExternalMetricsApi
from halcyon.metricsapi.certificates import Certificates

log = logging.getLogger(__name__)

_TRANSIENT_ERRORS = (errors.Busy, errors.Gone, errors.Unreachable)
"""Errors after which a later request may succeed without a change in the cluster. Other errors are final results."""


class CertificateSource(Protocol):
    """Source of the certificates of the operator's TLS server."""

    @property
    def certificates(self) -> Certificates | None:
        """Certificates of the TLS server; None until they have been issued."""


class MetricsApiCheck:
    """Check of the external metrics API and of the field `tolerance` of HPAs, with its last result."""

    def __init__(
        self,
        client: Kube,
        certificates: CertificateSource,
        *,
        namespace: str,
        service: str,
        watched: Sequence[str] = (),
    ) -> None:
        """Create the check without a result.

        `certificates` is the source of the CA that is written to the APIService, if that refers to this operator by
        `namespace` and `service`. `watched` are the namespaces to which the operator is limited, if any. A limited
        operator serves no metrics API.
        """
        self._client, self._certificates = client, certificates
        self._namespace, self._service, self._watched = namespace, service, watched
        self._tolerance: bool | None = None
        self._is_server_known, self._is_tolerance_known = bool(watched), False
        self.result: ExternalMetricsApi = api_service.UNKNOWN
        self._last_server = self.result

    @property
    def is_certain(self) -> bool:
        """Whether both properties of the cluster have been determined at least once."""
        return self._is_server_known and self._is_tolerance_known

    async def run_once(self) -> bool:
        """Check again, and return whether the result has changed, so that all models must be reconciled.

        While the API server can't be reached, the last result stays.
        """
        server = api_service.NAMESPACED if self._watched else await self._find_server()
        if not self._tolerance:  # the API server may have been upgraded since the last check
            await self._check_tolerance()
        result = replace(self._last_server if server is None else server, tolerance=self._tolerance)
        certificates = self._certificates.certificates
        # The APIService may refer to another server since the last result, whose caBundle must stay.
        if server is not None and server.ours and certificates is not None:
            try:
                await api_service.trust(self._client, certificates.bundle_pem)
            except (errors.ApiError, errors.Unreachable) as error:
                log.warning("cannot write the caBundle of the APIService", extra={"error": str(error)})
        if result == self.result:
            return False
        log.info("checked which server serves the external metrics API", extra={"ours": result.ours, "why": result.why})
        self.result = result
        return True

    async def _find_server(self) -> ExternalMetricsApi | None:
        """Return the server of the metrics API; None if it can't be read now, so that no model loses its HPA."""
        try:
            server = await api_service.find_server(self._client, namespace=self._namespace, service=self._service)
        except (errors.ApiError, errors.Unreachable) as error:
            is_answer = not isinstance(error, _TRANSIENT_ERRORS)
            self._is_server_known |= is_answer
            why = f"it is unknown who serves external.metrics.k8s.io: {error}"
            log.warning("cannot check the external metrics API; the last result stays", extra={"error": str(error)})
            if self._last_server.ours is None:
                self._last_server = ExternalMetricsApi(ours=False if is_answer else None, why=why)
            return None
        self._is_server_known, self._last_server = True, server
        return server

    async def _check_tolerance(self) -> None:
        try:
            namespace = next(iter(self._watched), self._namespace)
            self._tolerance = await api_service.keeps_tolerance(self._client, namespace=namespace)
        except (errors.ApiError, errors.Unreachable) as error:
            log.warning("it is unknown whether HPAs support a tolerance", extra={"error": str(error)})
            if isinstance(error, _TRANSIENT_ERRORS):
                return
        self._is_tolerance_known = True
