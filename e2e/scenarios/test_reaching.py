"""TLS, API keys and the access log on real pods: the kubelet hands over Secrets, and what lacks is told by the status."""

import base64
import contextlib
import http.client
import json
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from demo import models
from demo.coldstart import ColdStart
from demo.kube import Kube, wait_for
from demo.models import HTTP_PORT
from halcyon.metricsapi.certificates import Certificates, renewed

pytestmark = pytest.mark.more

NAME, CERTIFICATE, KEYS = "guarded", "guarded-tls", "guarded-keys"
HOST = "guarded.example"
KEY = "0123456789abcdef0123456789abcdef"
HANDED_OVER_S = 120
"""The kubelet updates mounted Secrets about once a minute."""


def document() -> dict[str, Any]:
    deployment = models.variant(NAME, gpus=0)
    deployment["spec"]["traffic"] |= {
        "tls": {"secretName": CERTIFICATE},
        "apiKeys": {"secretName": KEYS},
        "accessLog": "All",
    }
    return deployment


def secret(name: str, **data: str) -> dict[str, Any]:
    encoded = {key.replace("_", "."): base64.b64encode(text.encode()).decode() for key, text in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": encoded}


def put_certificate(kube: Kube, certificates: Certificates) -> None:
    kube.apply(secret(CERTIFICATE, tls_crt=certificates.serving.cert_pem, tls_key=certificates.serving.key_pem))


class _Named(http.client.HTTPSConnection):
    """Connection to an address whose certificate is for `HOST`."""

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._context.wrap_socket(self.sock, server_hostname=HOST)  # type: ignore[attr-defined]  # a private name


def request_status(kube: Kube, path: str, *, trusting: Certificates, key: str = KEY) -> int:
    """Send a GET request, and return the status of its answer.

    Raises:
        OSError: it can't be reached, or shows another certificate.
    """
    host, _, port = kube.must_address(NAME, HTTP_PORT).rpartition(":")
    context = ssl.create_default_context(cadata=trusting.bundle_pem)
    with contextlib.closing(_Named(host, int(port), context=context, timeout=10)) as connection:
        connection.request("GET", path, headers={"Authorization": f"Bearer {key}"} if key else {})
        return connection.getresponse().status


def serves(kube: Kube, certificates: Certificates) -> bool:
    try:
        return request_status(kube, "/v2/health/ready", trusting=certificates) == 200
    except OSError:
        return False


def failure_message(kube: Kube) -> str:
    condition = kube.condition(NAME, "BalancerReady") or {}
    return str(condition.get("message")) if condition.get("reason") == "BalancerDegraded" else ""


@pytest.fixture(scope="module")
def certificates() -> tuple[Certificates, Certificates]:
    """Return two sets of certificates that have nothing in common."""
    first, second = (renewed(None, (HOST,), datetime.now(UTC)) for _ in range(2))
    return first, second


def test_secrets_that_lack_are_told_and_what_comes_is_served(
    kube: Kube,
    digits: ColdStart,  # noqa: ARG001  # it comes first
    certificates: tuple[Certificates, Certificates],
    served: Callable[..., str],
) -> None:
    first, second = certificates
    kube.apply(document())
    lacks = f"Secret {CERTIFICATE}: key tls.crt is missing"
    wait_for(
        lambda: lacks in failure_message(kube) and f"Secret {KEYS}: there is no valid API key" in failure_message(kube),
        goal=lacks,
        limit_s=60,
    )
    assert (kube.condition(NAME, "Ready") or {})["status"] == "False"
    # Not stuck before its start, where only an Event of the pod would say why.
    wait_for(
        lambda: [pod["status"]["phase"] for pod in kube.pods(NAME, "balancer")] == ["Running"],
        goal="it runs",
        limit_s=30,
    )

    put_certificate(kube, first)
    kube.apply(secret(KEYS, alice=KEY))
    served(document())
    wait_for(lambda: serves(kube, first), goal="the first certificate is served", limit_s=HANDED_OVER_S)
    wait_for(
        lambda: (kube.condition(NAME, "BalancerReady") or {})["reason"] == "BalancerReady",
        goal="no failure",
        limit_s=30,
    )
    assert request_status(kube, "/v2/health/ready", trusting=first, key="") == 401
    assert request_status(kube, "/v2/health/ready", trusting=first, key=KEY[1:]) == 401

    put_certificate(kube, second)
    wait_for(lambda: serves(kube, second), goal="the second certificate is served", limit_s=HANDED_OVER_S)
    log = kube("logs", f"deploy/{NAME}-balancer", "-c", "haproxy")
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert {(line["status"], line["client"]) for line in lines} >= {(200, "alice"), (401, None)}
    assert KEY not in log
