"""Metrics pages that are read beside the load, from a server of HTTP."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from halcyon_measure.protocols.target import parse
from halcyon_measure.sampling.sampler import Sampler, SamplingSettings, Source


def test_query_of_a_metrics_url_reaches_its_server() -> None:
    paths: list[str] = []

    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Metrics) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        source = Source(pod="a", url=f"http://127.0.0.1:{server.server_port}/metrics?pod=a")
        target = parse("http://127.0.0.1:1", api="kserve", transport=None, encoding=None, model="m")
        sampler = Sampler(target, SamplingSettings(servers=(source,)))
        sampler.idle()
        sampler.close()
        server.shutdown()
    assert paths == ["/metrics?pod=a"]
