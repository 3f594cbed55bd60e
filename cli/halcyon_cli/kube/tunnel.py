"""Connections to a pod's port through the API server and the kubelet, as in `kubectl port-forward`.

One connection is a WebSocket. Each message begins with the number of a channel: 0 for data of the pod's port, 1 for
errors. The first message of each channel contains the port's number.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from urllib.parse import unquote, urlsplit

import websocket

from halcyon_cli.kube.kubeconfig import KubeconfigError
from halcyon_cli.kube.transport import Transport

_PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERROR = b"\0", b"\1"
_CHUNK = 2**16
_CONNECT_TIMEOUT_S = 30.0


class TunnelError(Exception):
    """The tunnel can't be opened. The message gives the reason."""


def open_tunnel(transport: Transport, path: str, port: int) -> socket.socket:
    """Open a tunnel to a port of the pod with this URL path, and return a socket connected to it.

    Raises:
        TunnelError: the API server rejects the request, or can't be reached.
    """
    url = f"ws{transport.access.server.removeprefix('http')}{path}/portforward?ports={port}"
    proxy = urlsplit(transport.proxy or "")
    try:
        options = (
            {"context": transport.tls, "server_hostname": transport.access.server_name} if transport.encrypted else {}
        )
        headers = transport.headers()
        tunnel = websocket.create_connection(
            url,
            timeout=_CONNECT_TIMEOUT_S,
            header=[f"{name}: {value}" for name, value in headers.items()],
            subprotocols=[_PROTOCOL],
            suppress_origin=True,
            sslopt=options,
            # The library has rules of its own for the environment's proxies, and heeds `http_no_proxy` only beside a proxy.
            http_no_proxy=["-"] if proxy.hostname else ["*"],
            http_proxy_host=proxy.hostname or "-",
            http_proxy_port=proxy.port or (443 if proxy.scheme == "https" else 80),
            http_proxy_auth=(unquote(proxy.username), unquote(proxy.password or "")) if proxy.username else None,
        )
    except websocket.WebSocketBadStatusException as error:
        raise TunnelError(_reason(error)) from None
    except (websocket.WebSocketException, OSError, KubeconfigError) as error:
        raise TunnelError(" ".join(str(error).split())) from None
    tunnel.settimeout(None)
    ours, theirs = socket.socketpair()
    for copy in (_to_pod, _from_pod):
        threading.Thread(target=copy, args=(theirs, tunnel), daemon=True).start()
    return ours


def _to_pod(local: socket.socket, tunnel: websocket.WebSocket) -> None:
    """Copy data from the program to the pod, until the program closes its socket."""
    with contextlib.suppress(OSError, websocket.WebSocketException):
        while data := local.recv(_CHUNK):
            tunnel.send_binary(_DATA + data)
    # There is no half-closed state. `abort` wakes the other thread, which closes the tunnel.
    with contextlib.suppress(OSError, websocket.WebSocketException):
        tunnel.send_close()
        tunnel.abort()  # type: ignore[no-untyped-call]


def _from_pod(local: socket.socket, tunnel: websocket.WebSocket) -> None:
    """Copy data from the pod to the program, until either side closes the tunnel or the API server reports an error."""
    new_channels = {_DATA, _ERROR}
    with contextlib.suppress(OSError, websocket.WebSocketException):
        while True:
            kind, message = tunnel.recv_data()
            if kind == websocket.ABNF.OPCODE_CLOSE:
                break
            channel, data = message[:1], message[1:]
            if channel in new_channels:
                new_channels.remove(channel)
                data = data[2:]
            if channel == _ERROR and data:
                break
            if data:
                local.sendall(data)
    with contextlib.suppress(OSError):
        local.shutdown(socket.SHUT_RDWR)  # wakes the other thread
    local.close()
    tunnel.shutdown()  # type: ignore[no-untyped-call]


def _reason(error: websocket.WebSocketBadStatusException) -> str:
    """Return the API server's message about a tunnel that it has rejected."""
    try:
        return str(json.loads(error.resp_body or b"")["message"])
    except (ValueError, TypeError, KeyError):
        return f"status {error.status_code}"
