"""Certificates of the site's own authority, which the chart value `extraEnv` adds with SSL_CERT_FILE."""

from __future__ import annotations

import argparse
import http.server
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from halcyon.control.runtime import option_groups, settings
from halcyon.kube import tracing
from halcyon.metricsapi.certificates import issue, make_ca
from halcyon.signals.prometheus.client import PrometheusUnavailable, query_prometheus

NEEDED = ("--namespace=halcyon-system", "--operator-image=o", "--balancer-image=b", "--server-image=s")
EMPTY = b'{"status": "success", "data": {"resultType": "vector", "result": []}}'


class Site(http.server.HTTPServer):
    """Prometheus and a collector of traces behind TLS, with a certificate of the site's own authority."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        ca, self.ca_file = make_ca(now := datetime.now(UTC)), folder / "ca.crt"
        pair, file = issue(ca, ["127.0.0.1"], now), folder / "serving.pem"
        self.ca_file.write_text(ca.cert_pem)
        file.write_text(pair.cert_pem + pair.key_pem)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(file)
        self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.url, self.posts = f"https://127.0.0.1:{self.server_port}", list[str]()


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers each request with an empty result of a query, and records the paths of POSTs."""

    server: Site

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(EMPTY)))
        self.end_headers()
        self.wfile.write(EMPTY)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posts.append(self.path)
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Write no log."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    server = Site(tmp_path)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    settings.add_arguments(parser)
    return parser.parse_args([*NEEDED, *arguments])


def test_prometheus_is_trusted_by_the_authorities_of_the_environment(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*more: str) -> object:
        prometheus = option_groups.prometheus(options(f"--prometheus-url={site.url}", *more))
        assert prometheus is not None
        return query_prometheus(prometheus, "up", None, 5.0)

    with pytest.raises(PrometheusUnavailable, match="unable to get local issuer certificate"):
        ask()
    monkeypatch.setenv("SSL_CERT_FILE", str(site.ca_file))
    assert ask() == []
    (other := site.ca_file.with_name("other.crt")).write_text(make_ca(datetime.now(UTC)).cert_pem)
    with pytest.raises(PrometheusUnavailable, match="unable to get local issuer certificate"):
        ask(f"--prometheus-ca-file={other}")


def test_a_collector_of_traces_is_trusted_by_the_authorities_of_the_environment(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(site.ca_file))
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # the operator's image sets neither
        monkeypatch.delenv(name, raising=False)
    traces = option_groups.traces(options(f"--traces-endpoint={site.url}/v1/traces"))
    assert traces is not None
    tracer = tracing.connect(traces, instance="one", version="0")
    with tracer.span("reconcile"):
        pass
    tracer.close()
    assert site.posts == ["/v1/traces"]
