"""`halcyon infer` on a model that is asked over a real connection: phases, errors, waking. Not here: files and tensors (tests/unit/cli)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from halcyon_cli.errors import ClusterError
from halcyon_cli.infer.connection import ModelConnection, NoResponse
from halcyon_cli.infer.request import InferenceError, infer
from halcyon_measure.errors import TensorError


class Model(BaseHTTPRequestHandler):
    """KServe's v2 protocol in a few lines: the sum of each row. As `mood` says, an error, or nothing."""

    protocol_version = "HTTP/1.1"
    mood = ""

    def do_GET(self) -> None:
        if self.mood in {"asleep", "out of reach"}:
            self._answer(503, {"error": "no replica is up"})
            return
        described = {"name": "m", "inputs": [{"name": "pixels", "datatype": "FP32", "shape": [-1, 64]}]}
        self._answer(200 if self.path == "/v2/models/m" else 404, described)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.mood == "out of reach":
            self._answer(503, {"error": "no replica came in time"})
            return
        if body == b"{}":
            type(self).mood = ""
            self._answer(400, {"error": "no inputs"})
            return
        head = int(self.headers["Inference-Header-Content-Length"])
        tensor = json.loads(body[:head])["inputs"][0]
        rows = np.frombuffer(body[head:], np.float32).reshape(tensor["shape"])
        output = {"name": "sum", "datatype": "FP32", "shape": [len(rows)], "data": rows.sum(axis=1).tolist()}
        if self.mood == "silent":
            self.close_connection = True
        elif self.mood == "strange":
            self._answer(200, {"hello": 1})
        else:
            status = 503 if self.mood == "busy" else 200
            self._answer(status, {"error": "the queue is full"} if self.mood == "busy" else {"model_name": "m", "model_version": "1", "outputs": [output]})  # fmt: skip

    def _answer(self, status: int, document: Any) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def model() -> Iterator[tuple[str, type[Model]]]:
    """Address of a model, and its mood."""

    class Moody(Model):
        pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Moody)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", Moody
    server.shutdown()
    thread.join()
    server.server_close()


ROWS = [(None, "x.json", json.dumps([[1] * 64, [2] * 64]).encode())]


def test_one_request_is_answered_and_every_phase_has_its_time(model: tuple[str, type[Model]]) -> None:
    wire = ModelConnection.to_url(model[0], timeout_s=30)
    with wire.closing():
        response = infer(wire, "m", None, ROWS).to_dict()

    assert (response["model"], response["version"]) == ("m", "1")
    assert response["outputs"] == [{"name": "sum", "datatype": "FP32", "shape": [2], "data": [64.0, 128.0]}]
    phases = response["seconds"]
    assert list(phases) == ["connect", "send", "wait", "receive", "total"]
    assert all(seconds > 0 for seconds in phases.values())
    assert phases["total"] == pytest.approx(sum(phases.values()) / 2)


@pytest.mark.parametrize(
    ("mood", "kind", "message"),
    [
        ("busy", InferenceError, "responds with 503: the queue is full"),
        ("silent", NoResponse, "sent no response"),
        ("out of reach", InferenceError, "responds with 503: no replica came in time"),
        ("strange", InferenceError, "did not respond in the KServe v2 protocol"),
    ],
)
def test_an_error_is_shown_in_the_models_words(
    mood: str, kind: type[Exception], message: str, model: tuple[str, type[Model]]
) -> None:
    model[1].mood = mood
    wire = ModelConnection.to_url(model[0], timeout_s=30)
    with wire.closing(), pytest.raises(kind) as caught:
        infer(wire, "m", None, ROWS)

    assert message in str(caught.value)


def test_a_model_at_zero_is_woken_by_inference_and_shows_its_phases(
    model: tuple[str, type[Model]],
) -> None:
    model[1].mood = "asleep"
    wire = ModelConnection.to_url(model[0], timeout_s=30)
    with wire.closing():
        response = infer(wire, "m", None, ROWS).to_dict()

    assert response["outputs"][0]["data"] == [64.0, 128.0]


def test_a_model_with_api_keys_receives_the_key_in_each_request() -> None:
    class WithKeys(Model):
        @override
        def parse_request(self) -> bool:
            if not super().parse_request():
                return False
            if self.headers["Authorization"] == "Bearer 0123456789abcdef":
                return True
            self._answer(401, {"error": "an API key is required"})
            return False

    server = ThreadingHTTPServer(("127.0.0.1", 0), WithKeys)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        wire = ModelConnection.to_url(url, timeout_s=30)
        with wire.closing(), pytest.raises(InferenceError, match=r"401: .* for example --api-key-file FILE"):
            infer(wire, "m", None, ROWS)
        wire = ModelConnection.to_url(url, timeout_s=30)
        wire.headers["Authorization"] = "Bearer 0123456789abcdef"
        with wire.closing():
            assert infer(wire, "m", None, ROWS).to_dict()["outputs"][0]["data"] == [64.0, 128.0]
    finally:
        server.shutdown()
        server.server_close()


class WithOptionalInput(Model):
    """A model with a second input. Only its configuration says that the input is optional."""

    is_optional = True

    def do_GET(self) -> None:
        scale = {"name": "scale", "datatype": "FP32", "shape": [-1, 1]}
        described = {"name": "m", "inputs": [{"name": "pixels", "datatype": "FP32", "shape": [-1, 64]}, scale]}
        config = {"name": "m", "input": [{"name": "pixels"}, {"name": "scale", "optional": self.is_optional}]}
        self._answer(200, config if self.path == "/v2/models/m/config" else described)


@pytest.mark.parametrize("is_optional", [True, False])
def test_an_optional_input_needs_no_file(*, is_optional: bool) -> None:
    handler = type("Handler", (WithOptionalInput,), {"is_optional": is_optional})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    wire = ModelConnection.to_url(f"http://127.0.0.1:{server.server_port}", timeout_s=30)
    try:
        with wire.closing():
            if is_optional:
                assert infer(wire, "m", None, [("pixels", *ROWS[0][1:])]).to_dict()["outputs"][0]["data"] == [
                    64.0,
                    128.0,
                ]
            else:
                with pytest.raises(TensorError, match="no file for scale"):
                    infer(wire, "m", None, [("pixels", *ROWS[0][1:])])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_missing_model_is_reported(model: tuple[str, type[Model]]) -> None:
    wire = ModelConnection.to_url(model[0], timeout_s=30)
    with wire.closing(), pytest.raises(InferenceError, match="responds with 404"):
        infer(wire, "other", "3", ROWS)


def test_an_address_that_does_not_answer_is_named() -> None:
    with pytest.raises(ClusterError, match="is unreachable"):
        ModelConnection.to_url("http://127.0.0.1:1", timeout_s=30)
