"""The command line's requests: credentials, TLS, proxies, tunnels into pods and watches, over real connections."""

from __future__ import annotations

import base64
import json
import ssl
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from halcyon.kube import kinds
from halcyon_cli.errors import ClusterError
from halcyon_cli.infer.connection import ModelConnection, NoResponse, open_tunnel
from halcyon_cli.kube.client import Cluster, Target
from halcyon_cli.kube.object_caches import ObjectCaches, Selection
from tests.integration.certificates import pair
from tests.integration.cli.api_with_tls import TlsApi, serving

PLUGIN = """\
import json, os, sys
asked = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
runs = int(open(sys.argv[1]).read() or 0) + 1
open(sys.argv[1], "w").write(str(runs))
status = {"token": f"token-{runs}-" + os.environ["WHO"]} | json.loads(os.environ["MORE"])
print(json.dumps({"apiVersion": asked["apiVersion"], "kind": "ExecCredential", "status": status}))
"""


@pytest.fixture
def api(tmp_path: Path) -> Iterator[TlsApi]:
    with serving(tmp_path) as running:
        yield running


class Desk:
    """Kubeconfigs of one cluster."""

    def __init__(self, folder: Path, api: TlsApi) -> None:
        self.folder, self.api = folder, api

    def cluster(self, user: dict[str, Any] | None = None, cluster: Mapping[str, Any] | None = None) -> Cluster:
        file = self.folder / "config"
        described = {"server": self.api.url, "certificate-authority": "s.crt", **(cluster or {})}
        document = {
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
            "clusters": [{"name": "c", "cluster": described}],
            "users": [{"name": "u", "user": user or {}}],
        }
        file.write_text(json.dumps(document))
        return Cluster(Target("get", file))

    def shown(self, user: dict[str, Any] | None = None, cluster: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What the server sees of a request."""
        assert self.cluster(user, cluster).server_version() == "v1.35.0"
        return self.api.requests[-1]

    def plugin(self, **more: Any) -> dict[str, Any]:
        script, runs = self.folder / "plugin.py", self.folder / "runs"
        script.write_text(PLUGIN)
        runs.write_text("")
        env = [{"name": "WHO", "value": "ada"}, {"name": "MORE", "value": json.dumps(more)}]
        return {"exec": {"command": sys.executable, "args": [str(script), str(runs)], "env": env}}


@pytest.fixture
def desk(tmp_path: Path, api: TlsApi) -> Desk:
    return Desk(tmp_path, api)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_each_kind_of_credentials_reaches_the_server(desk: Desk, api: TlsApi) -> None:
    (desk.folder / "token").write_text("from-file\n")
    certificate = {"client-certificate-data": encoded(api.client.crt), "client-key-data": encoded(api.client.key)}

    assert "authorization" not in desk.shown()
    assert desk.shown({"token": "abc"})["authorization"] == ["Bearer abc"]
    assert desk.shown({"tokenFile": "token"})["authorization"] == ["Bearer from-file"]
    assert desk.shown({"username": "ada", "password": "x:y"})["authorization"] == ["Basic " + encoded("ada:x:y")]
    assert desk.shown(certificate)["certificate"]
    assert desk.shown(desk.plugin())["authorization"] == ["Bearer token-1-ada"]
    of_plugin = desk.plugin(clientCertificateData=api.client.crt, clientKeyData=api.client.key)
    assert desk.shown(of_plugin)["certificate"]
    impersonated = desk.shown({"as": "ada", "as-groups": ["a", "b"]})
    assert (impersonated["impersonate-user"], impersonated["impersonate-group"]) == (["ada"], ["a", "b"])


def test_a_plugin_runs_once_until_its_token_expires(desk: Desk, api: TlsApi) -> None:
    lasting = desk.cluster(desk.plugin(expirationTimestamp="2999-01-01T00:00:00Z"))
    for _ in range(2):
        lasting.server_version()
    assert [request["authorization"] for request in api.requests] == [["Bearer token-1-ada"]] * 2

    expired = desk.cluster(desk.plugin(expirationTimestamp="2020-01-01T00:00:00Z"))
    expired.server_version()
    expired.server_version()
    assert api.requests[-1]["authorization"] != api.requests[-2]["authorization"]


def test_a_plugin_runs_again_if_its_token_is_rejected(desk: Desk, api: TlsApi) -> None:
    cluster = desk.cluster(desk.plugin())
    cluster.server_version()
    api.revoked.append("token-1-ada")
    assert cluster.server_version() == "v1.35.0"
    tokens = [request["authorization"][0] for request in api.requests]
    assert tokens == ["Bearer token-1-ada", "Bearer token-1-ada", "Bearer token-2-ada"]

    api.requests.clear()
    with pytest.raises(ClusterError, match=r"rejects the kubeconfig.s credentials"):
        desk.cluster(desk.plugin()).server_version()
    assert len(api.requests) == 1


def test_a_token_file_is_read_again_for_each_request(desk: Desk, api: TlsApi) -> None:
    file = desk.folder / "token"
    file.write_text("one")
    cluster = desk.cluster({"tokenFile": "token"})
    cluster.server_version()
    file.write_text("two")
    cluster.server_version()

    assert [request["authorization"] for request in api.requests] == [["Bearer one"], ["Bearer two"]]


@pytest.mark.parametrize(
    ("plugin", "reason"),
    [
        (
            {"command": "no-such-login", "installHint": "See\nthe docs."},
            "no-such-login can't be run: .*; See the docs.",
        ),
        ({"command": sys.executable, "args": ["-c", "raise SystemExit(3)"]}, "failed with exit status 3"),
        ({"command": sys.executable, "args": ["-c", "print('hello')"]}, "printed no ExecCredential"),
    ],
)
def test_a_plugin_that_fails_is_named(desk: Desk, plugin: dict[str, Any], reason: str) -> None:
    with pytest.raises(ClusterError, match=f"no access to the cluster at https://.*: the credential plugin .*{reason}"):
        desk.cluster({"exec": plugin}).server_version()


def test_the_servers_certificate_is_verified_unless_the_cluster_says_otherwise(desk: Desk, api: TlsApi) -> None:
    by_name = {"server": api.url.replace("127.0.0.1", "localhost")}
    with pytest.raises(ClusterError, match=r"its certificate isn't trusted; .*CERTIFICATE_VERIFY_FAILED"):
        desk.cluster(None, {"certificate-authority-data": encoded(pair().crt)}).server_version()
    with pytest.raises(ClusterError, match=r"Hostname mismatch|doesn't match"):
        desk.cluster(None, by_name).server_version()
    assert desk.shown(None, by_name | {"tls-server-name": "127.0.0.1"})
    assert desk.shown(None, {"certificate-authority": None, "insecure-skip-tls-verify": True})


def test_a_tunnel_carries_bytes_both_ways_until_the_pod_closes(desk: Desk) -> None:
    with closing(open_tunnel(desk.cluster({"token": "abc"}), "m-0", 8000)) as tunnel:
        tunnel.settimeout(10)
        sent = bytes(range(256)) * 4096
        tunnel.sendall(sent)
        received = b""
        while len(received) < len(sent):
            received += tunnel.recv(2**16)
        assert received == sent
        tunnel.sendall(b"close")
        assert tunnel.recv(10) == b""


def test_an_error_of_the_pods_port_ends_the_tunnel(desk: Desk) -> None:
    with closing(open_tunnel(desk.cluster(), "m-0", 8000)) as tunnel:
        tunnel.settimeout(10)
        tunnel.sendall(b"fail")
        assert tunnel.recv(10) == b""


def test_a_refused_tunnel_names_the_reason_and_the_permission(desk: Desk, api: TlsApi) -> None:
    api.refusal = 'pods "m-0" is forbidden: User "bob" cannot create "pods/portforward"'

    with pytest.raises(
        ClusterError, match=r'pod m-0 is unreachable .*User "bob" cannot create .* you need the verb create'
    ):
        open_tunnel(desk.cluster(), "m-0", 8000)


class Closed(BaseHTTPRequestHandler):
    """A balancer that requires an API key."""

    def do_GET(self) -> None:
        content = json.dumps({"key": self.headers["Authorization"]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.mark.parametrize("is_mutual", [False, True])
def test_a_tunnel_to_a_balancer_with_tls_is_encrypted(desk: Desk, api: TlsApi, *, is_mutual: bool) -> None:
    model = ThreadingHTTPServer(("127.0.0.1", 0), Closed)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(desk.folder / "s.crt", desk.folder / "s.key")
    if is_mutual:
        context.load_verify_locations(desk.folder / "c.crt")
        context.verify_mode = ssl.CERT_REQUIRED
    model.socket = context.wrap_socket(model.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=model.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    api.pod = ("127.0.0.1", model.server_port)
    try:
        connection = ModelConnection.to_pod(desk.cluster(), "m-0", 8000, timeout_s=10, encrypted=True)
        connection.headers["Authorization"] = "Bearer 0123456789abcdef"
        with connection.closing():
            if is_mutual:
                with pytest.raises(
                    NoResponse, match="pod m-0 requires a client certificate, which halcyon infer doesn't send"
                ):
                    connection.request("GET", "/v2/models/m")
            else:
                assert json.loads(connection.request("GET", "/v2/models/m").body) == {"key": "Bearer 0123456789abcdef"}
    finally:
        model.shutdown()
        thread.join()
        model.server_close()


def pod(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


def test_copies_follow_a_watch_and_a_new_list_after_a_lost_one(desk: Desk, api: TlsApi) -> None:
    api.lists = [[pod("a", 1), pod("b", 2)], [pod("d", 9)]]
    expired = {"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}
    first = [
        {"type": "ADDED", "object": pod("c", 6)},
        {"type": "DELETED", "object": pod("a", 7)},
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "8"}}},
        expired,
    ]
    api.watches = [first, []]
    caches = ObjectCaches(desk.cluster(), {kinds.POD: Selection()})
    states: list[list[str]] = []
    caches.start()
    ends = time.monotonic() + 20
    while time.monotonic() < ends and ["d"] not in states:
        caches.wait(1)
        states.append([str(obj["metadata"]["name"]) for obj in caches.objects(kinds.POD)])
    caches.stop()

    assert caches.is_synced
    assert states[-1] == ["d"]
    assert caches.warning == ""
