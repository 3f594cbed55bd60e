"""The check who serves external metrics in this cluster, and whether its HPAs keep a tolerance: on both depends what scales a model."""

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


class CertificateSource(Protocol):
    """The certificates that the metrics API is served with."""

    @property
    def certificates(self) -> Certificates | None:
        """Return them; None until there are some."""


class MetricsApiCheck:
    """The check, and its last result."""

    def __init__(
        self,
        client: Kube,
        certificates: CertificateSource,
        *,
        namespace: str,
        service: str,
        watched: Sequence[str] = (),
    ) -> None:
        """Start without a result.

        Args:
            client: of the API server.
            certificates: whose CA the API server is made to trust if it sends its requests to us.
            namespace: the operator's own.
            service: name of the Service that an APIService of ours names.
            watched: namespaces that the operator is limited to; such an operator serves no metrics API.
        """
        self._client, self._certificates = client, certificates
        self._namespace, self._service, self._watched = namespace, service, watched
        self._tolerance: bool | None = None
        self.result: ExternalMetricsApi = api_service.UNKNOWN

    async def run_once(self) -> bool:
        """Check again; return whether the result has changed, which concerns every model with scaling."""
        result = api_service.NAMESPACED
        if not self._watched:
            result = await api_service.find_server(self._client, namespace=self._namespace, service=self._service)
        if self._tolerance is None:
            namespace = next(iter(self._watched), self._namespace)
            self._tolerance = await api_service.keeps_tolerance(self._client, namespace=namespace)
        result = replace(result, tolerance=bool(self._tolerance))
        known = self._certificates.certificates
        if result.ours and known is not None:
            try:
                await api_service.trust(self._client, known.bundle_pem)
            except (errors.ApiError, errors.Unreachable) as error:
                log.warning("cannot write the caBundle", extra={"error": str(error)})
        if result == self.result:
            return False
        log.info("metrics API", extra={"ours": result.ours, "why": result.why})
        self.result = result
        return True
