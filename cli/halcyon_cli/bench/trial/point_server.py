"""The point server in a trial pod of a tuning run. It listens on localhost, and measures one point at a time.

| request | answer |
| --- | --- |
| GET /config | the model's configuration in Triton; 503 until the model is loaded, 500 with the reason if it can't be |
| PUT /points/ID | 202; the point is measured after those before it. A repeated ID has no effect |
| GET /points/ID | 200 with the point, or with an error; 202 with the progress while it is measured |
| POST /end | 202, and the process ends |

A command reaches it through the API server, as `kubectl port-forward` does. Requests are short, so after a broken
connection the command only repeats a request. Points are measured in the main thread, which receives the signals.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from halcyon_cli.bench.trial import point_json
from halcyon_cli.bench.trial.trial_runner import TrialRunner
from halcyon_measure.errors import MeasureError
from halcyon_measure.measurement import Measurement
from halcyon_measure.protocols.repository import Repository

HOST, PORT = "127.0.0.1", 8010
_MAX_BODY = 1 << 20
_POINTS = "/points/"


@dataclass
class _Session:
    """State that the threads share. Its values are replaced, but never modified."""

    config: Mapping[str, Any] | None = None
    problem: str = ""
    """Reason why no point can be measured; empty if points can be measured."""
    progress: str = "waiting until the model is loaded"
    results: dict[str, Mapping[str, Any] | None] = field(default_factory=dict)
    """Responses by the ID of the point. A response is None if the point isn't measured yet."""
    todo: queue.Queue[tuple[str, Mapping[str, Any]] | None] = field(default_factory=queue.Queue)
    lock: threading.Lock = field(default_factory=threading.Lock)


def serve(
    prepare: Callable[[], Measurement], show: Callable[[str], None], *, host: str = HOST, port: int = PORT
) -> int:
    """Serve requests until the command ends the server, and return the exit status.

    `prepare` waits until the model is loaded.
    """
    session = _Session()
    server = _Server((host, port), session)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True)
    thread.start()

    def record_progress(text: str) -> None:
        session.progress = text
        show(text)

    try:
        _work(session, prepare, record_progress)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    return 1 if session.problem else 0


def _work(session: _Session, prepare: Callable[[], Measurement], show: Callable[[str], None]) -> None:
    show(session.progress)
    prepared: Measurement | None = None
    try:
        prepared = prepare()
        session.config = Repository(prepared.target).config()
    except MeasureError as error:
        session.problem = str(error)
    runner: TrialRunner | None = None
    while (item := session.todo.get()) is not None:
        name, document = item
        if prepared is None or session.config is None:
            session.results[name] = {"error": session.problem}
            continue
        try:
            configuration, load, parameter = point_json.parsed_request(document)
            if runner is None:
                runner = TrialRunner(prepared, session.config, threads_parameter=parameter, show=show)
            session.results[name] = {"point": point_json.point(runner.measure(configuration, load))}
        except (MeasureError, ValueError, KeyError, TypeError) as error:
            session.results[name] = {"error": str(error) or type(error).__name__}


class _Server(ThreadingHTTPServer):
    """HTTP server whose handlers share a session."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], session: _Session) -> None:
        self.session = session
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    """Handler of one connection."""

    server: _Server

    def do_GET(self) -> None:
        """Answer with the configuration or a point."""
        session = self.server.session
        if self.path == "/config":
            self._answer_config(session)
            return
        name = self.path.removeprefix(_POINTS)
        if name not in session.results:
            self._answer(404, {"error": f"{self.path}: there is no such point"})
            return
        result = session.results[name]
        self._answer(*((202, {"said": session.progress}) if result is None else (200, result)))

    def do_PUT(self) -> None:
        """Add a point to the queue."""
        session = self.server.session
        try:
            length = int(self.headers.get("Content-Length") or 0)
            document = json.loads(self.rfile.read(min(length, _MAX_BODY)))
        except ValueError as error:
            self._answer(400, {"error": f"not a point: {error}"})
            return
        with session.lock:
            name = self.path.removeprefix(_POINTS)
            if name not in session.results:
                session.results[name] = None
                session.todo.put((name, document))
        self._answer(202, {})

    def do_POST(self) -> None:
        """End the server."""
        self._answer(202, {})
        self.server.session.todo.put(None)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name of the base class
        """Log nothing, because the log is for the progress."""

    def _answer_config(self, session: _Session) -> None:
        if session.problem:
            self._answer(500, {"error": session.problem})
        elif session.config is None:
            self._answer(503, {"said": session.progress})
        else:
            self._answer(200, session.config)

    def _answer(self, status: int, document: Mapping[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
