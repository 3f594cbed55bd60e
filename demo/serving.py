"""What one model does with requests: right answers, batches, and shares between its pods."""

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
from manifests.examples.digits import train

_ROWS = 16
CLIENTS = 32


@dataclass(frozen=True)
class Accuracy:
    """The share of held-out digits that were labelled right, by protocol."""

    http: float
    grpc: float
    digits: int


def accuracy(kube: Kube, name: str) -> Accuracy:
    """Send every held-out digit over HTTP and over gRPC, with tritonclient, in requests of 16 rows."""
    _, pixels, _, labels = train.split()
    by_protocol = {}
    for client_module, port in ((http_client, HTTP_PORT), (grpc_client, GRPC_PORT)):
        with client_module.InferenceServerClient(kube.must_address(name, port)) as client:
            right = 0
            for start in range(0, len(pixels), _ROWS):
                rows = pixels[start : start + _ROWS]
                tensor = client_module.InferInput("pixels", list(rows.shape), "FP32")
                tensor.set_data_from_numpy(rows)
                told: Any = client.infer(name, [tensor]).as_numpy("label")
                right += int(np.count_nonzero(told.reshape(-1) == labels[start : start + _ROWS]))
        by_protocol[port] = round(right / len(pixels), 4)
    gc.collect()  # scikit-learn's arrays, and tritonclient's green threads before an interpreter that warns of them
    return Accuracy(http=by_protocol[HTTP_PORT], grpc=by_protocol[GRPC_PORT], digits=len(pixels))


@dataclass(frozen=True)
class Comparison:
    """The same model, machine and load, with dynamic batching and without."""

    batched: Report
    unbatched: Report

    @property
    def gain(self) -> float:
        """How many times as many answers per second."""
        return round(self.batched.rate_rps / self.unbatched.rate_rps, 2)


def compare_batching(kube: Kube, *, batched: str, unbatched: str, rounds: int = 3, round_s: float = 4) -> Comparison:
    """Put 32 closed-loop clients on each of two models that are served, in turns; both are warmed up first.

    In turns, so that whatever else the machine does meanwhile weighs on both. The totals of all rounds are compared.
    """
    # Which pod answers is not asked: there is one, and its name would be copied with each answer.
    for name in (unbatched, batched):
        address = kube.must_address(name, GRPC_PORT)
        process.run(Load(address=address, model=name, clients=CLIENTS, duration_s=1.5, who_output=None))
    reports: dict[str, list[Report]] = {unbatched: [], batched: []}
    for _ in range(rounds):
        for name, done in reports.items():
            address = kube.must_address(name, GRPC_PORT)
            load = Load(address=address, model=name, clients=CLIENTS, duration_s=round_s, who_output=None)
            done.append(process.run(load))
    return Comparison(batched=together(reports[batched]), unbatched=together(reports[unbatched]))


def one_channel(kube: Kube, name: str, *, duration_s: float, clients: int = 12) -> Report:
    """Send over a single long-lived gRPC connection; the report's shares tell which pods answered."""
    address = kube.must_address(name, GRPC_PORT)
    return process.run(Load(address=address, model=name, clients=clients, channels=1, duration_s=duration_s))


def compared_models(*, image: str | None = None) -> list[dict[str, Any]]:
    """The two models of the comparison, digits-batched and digits-unbatched."""
    return [
        models.variant("digits-batched", image=image),
        models.variant("digits-unbatched", batching=False, image=image),
    ]
