"""What the embedded cluster's network owes its users: a connection that comes too early is late, and not lost."""

import errno
import ipaddress
import select
import socket
from typing import Any

from demo.kube import Kube

_NAME = "late"
_LIMIT_S = 90
"""Its first packet is sent again after 1, 3, 7, 15, 31 and 63 s."""


def _api_server(kube: Kube) -> tuple[str, int]:
    """Return the address of the API server, which listens in every cluster."""
    (endpoint_slice,) = kube.items(
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
        labelSelector="kubernetes.io/service-name=kubernetes",
    )
    return endpoint_slice["endpoints"][0]["addresses"][0], endpoint_slice["ports"][0]["port"]


def _unused_address(kube: Kube) -> str:
    """Return one of the lowest 256 addresses for Services, which the API server assigns only on request."""
    first = kube.json("/api/v1/namespaces/default/services/kubernetes")
    assert first is not None
    return str(ipaddress.ip_address(first["spec"]["clusterIP"]) + 7)


def _service(address: str, *, endpoint: str, port: int) -> list[dict[str, Any]]:
    return [
        # The slice first: kube-proxy refuses connections to a Service without endpoints.
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": _NAME, "labels": {"kubernetes.io/service-name": _NAME}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [endpoint]}],
            "ports": [{"port": port}],
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": _NAME},
            "spec": {"clusterIP": address, "ports": [{"port": port}]},
        },
    ]


def test_a_connection_that_begins_before_its_service_is_known_gets_through(kube: Kube) -> None:
    address, (endpoint, port) = _unused_address(kube), _api_server(kube)
    with socket.socket() as early:
        early.setblocking(False)
        assert early.connect_ex((address, port)) == errno.EINPROGRESS
        kube.apply(*_service(address, endpoint=endpoint, port=port))
        try:
            _, answered, _ = select.select([], [early], [], _LIMIT_S)
            assert answered, "nothing came back"
            assert early.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        finally:
            kube("delete", "service,endpointslice", _NAME, "--ignore-not-found")
