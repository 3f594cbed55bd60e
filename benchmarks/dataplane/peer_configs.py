"""Configurations of the peers: least connections over the same servers, gRPC on both sides, no access log. Pure."""

import json
from collections.abc import Sequence
from pathlib import PurePosixPath


def haproxy(listen: int, servers: Sequence[str]) -> str:
    """Return HAProxy's configuration, the shortest that balances gRPC by request."""
    lines = [f"  server s{number} {server} proto h2 check" for number, server in enumerate(servers, start=1)]
    return "\n".join(
        [
            "global",
            "  maxconn 4000",
            "  tune.h2.fe.max-concurrent-streams 1000",
            "defaults",
            "  mode http",
            "  timeout connect 1s",
            "  timeout client 1h",
            "  timeout server 1h",
            "frontend grpc",
            f"  bind 127.0.0.1:{listen} proto h2",
            "  default_backend servers",
            "backend servers",
            "  balance leastconn",
            *lines,
            "",
        ]
    )


def nginx(listen: int, servers: Sequence[str], folder: PurePosixPath) -> str:
    """Return nginx's configuration. `folder` is a writable folder.

    The default limit of 1,000 requests per connection is removed on both sides.
    """
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    return "\n".join(
        [
            "user root;",
            "worker_processes auto;",
            "daemon off;",
            f"pid {folder}/pid;",
            "error_log stderr error;",
            "events { worker_connections 4096; }",
            "http {",
            "  access_log off;",
            *(f"  {kind}_temp_path {folder}/{kind};" for kind in kinds),
            "  upstream servers {",
            "    zone servers 64k;",
            "    least_conn;",
            *(f"    server {server};" for server in servers),
            "    keepalive 64;",
            "    keepalive_requests 100000000;",
            "  }",
            "  server {",
            f"    listen 127.0.0.1:{listen};",
            "    http2 on;",
            "    http2_max_concurrent_streams 1000;",
            "    keepalive_requests 100000000;",
            "    location / { grpc_pass grpc://servers; grpc_socket_keepalive on; }",
            "  }",
            "}",
            "",
        ]
    )


def envoy(listen: int, servers: Sequence[str]) -> str:
    """Return Envoy's bootstrap configuration as JSON, with LEAST_REQUEST."""
    http2 = {"http2_protocol_options": {"max_concurrent_streams": 1000}}
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "grpc",
        "codec_type": "HTTP2",
        **http2,
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "servers", "timeout": "0s"}}],
                }
            ]
        },
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
            }
        ],
    }
    upstream = {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": http2,
    }
    cluster = {
        "name": "servers",
        "type": "STATIC",
        "connect_timeout": "1s",
        "lb_policy": "LEAST_REQUEST",
        # Envoy's default limits of 1,024 each are far above the number of requests in flight here.
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": upstream},
        "load_assignment": {
            "cluster_name": "servers",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _socket(server)}} for server in servers]}],
        },
    }
    listener = {
        "name": "grpc",
        "address": _socket(f"127.0.0.1:{listen}"),
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }
    return json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}}, indent=1)


def _socket(address: str) -> dict[str, object]:
    host, _, port = address.rpartition(":")
    return {"socket_address": {"address": host, "port_value": int(port)}}
