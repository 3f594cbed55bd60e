"""Checks of a model that serves: correct responses, batching, and the distribution of requests over its pods."""

import gc
from dataclasses import dataclass
from typing import Any

import numpy as np
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client

from demo import models
from demo.kube import Kube
from demo.models import GRPC_PORT, HTTP_PORT
from e2e.load import process
from e2e.load.settings import Load, Report, together

_ROWS = 16
CLIENTS = 32


@dataclass(frozen=True)
class Accuracy:
    """Share of the held-out digits that were classified correctly, for each protocol."""

    http: float
    grpc: float
    digits: int


def accuracy(kube: Kube, name: str) -> Accuracy:
    """Send every held-out digit over HTTP and over gRPC with tritonclient, in requests of 16 rows."""
    from manifests.examples.digits import train  # noqa: PLC0415  # scikit-learn takes seconds to import, and tests import this module

    _, pixels, _, labels = train.split()
    by_protocol = {}
    for client_module, port in ((http_client, HTTP_PORT), (grpc_client, GRPC_PORT)):
        with client_module.InferenceServerClient(kube.must_address(name, port)) as client:
            correct = 0
            for start in range(0, len(pixels), _ROWS):
                rows = pixels[start : start + _ROWS]
                tensor = client_module.InferInput("pixels", list(rows.shape), "FP32")
                tensor.set_data_from_numpy(rows)
                predicted: Any = client.infer(name, [tensor]).as_numpy("label")
                correct += int(np.count_nonzero(predicted.reshape(-1) == labels[start : start + _ROWS]))
        by_protocol[port] = round(correct / len(pixels), 4)
    gc.collect()  # free scikit-learn's arrays, and tritonclient's green threads before they cause a warning
    return Accuracy(http=by_protocol[HTTP_PORT], grpc=by_protocol[GRPC_PORT], digits=len(pixels))


@dataclass(frozen=True)
class Comparison:
    """Throughput of the same model with and without dynamic batching, on the same machine and under the same load."""

    batched: Report
    unbatched: Report

    @property
    def gain(self) -> float:
        """Return the throughput with batching divided by the throughput without."""
        return round(self.batched.rate_rps / self.unbatched.rate_rps, 2)


def compare_batching(kube: Kube, *, batched: str, unbatched: str, rounds: int = 3, round_s: float = 4) -> Comparison:
    """Run 32 closed-loop clients against each of two models, alternately, after warming up both.

    Alternating rounds expose both models equally to other work on the machine. The totals over all rounds are compared.
    """
    # The name of the responding pod is not requested: there is only one, and copying it into each response costs time.
    for name in (unbatched, batched):
        address = kube.must_address(name, GRPC_PORT)
        process.run(Load(address=address, model=name, clients=CLIENTS, duration_s=1.5, who_output=None))
    reports: dict[str, list[Report]] = {unbatched: [], batched: []}
    for _ in range(rounds):
        for name, completed in reports.items():
            address = kube.must_address(name, GRPC_PORT)
            load = Load(address=address, model=name, clients=CLIENTS, duration_s=round_s, who_output=None)
            completed.append(process.run(load))
    return Comparison(batched=together(reports[batched]), unbatched=together(reports[unbatched]))


def load_single_channel(kube: Kube, name: str, *, duration_s: float, clients: int = 12) -> Report:
    """Send requests over a single gRPC connection. The report contains each pod's share of the responses."""
    address = kube.must_address(name, GRPC_PORT)
    return process.run(Load(address=address, model=name, clients=clients, channels=1, duration_s=duration_s))


def compared_models(*, image: str | None = None) -> list[dict[str, Any]]:
    """Return the two models of the comparison, digits-batched and digits-unbatched.

    A batch of b rows takes at least 20 + 2 b ms, four times as long as in digits. So the figure depends less on the CPU
    of the machine, of which a batch with 16 requests needs about 10 ms.
    """
    compared = [
        models.variant("digits-batched", image=image),
        models.variant("digits-unbatched", batching=False, image=image),
    ]
    for document in compared:
        document["spec"]["model"]["parameters"] = {"gpu_ms": "20", "gpu_ms_per_row": "2"}
    return compared
