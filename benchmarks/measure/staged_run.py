"""One measurement of a staged server: the load, the function that prepares its requests, and the phases that were found."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.dataplane.tritons import HTTP_PORT, METRICS_PORT, Triton
from halcyon_measure.engine.hooks import HookSettings
from halcyon_measure.engine.pool import WarmUp
from halcyon_measure.measurement import Measurement
from halcyon_measure.protocols import target
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.sampling.sampler import SamplingSettings, Source
from halcyon_measure.schedule.scenario import Scenario


def measured(
    triton: Triton,
    scenario: Scenario,
    *,
    port: int = 0,
    protocol: str = "http",
    sampling: SamplingSettings | None = None,
    **others: Any,
) -> BenchDocument:
    """Run a load on a server, or on a port of loopback that leads to it, and return the document."""
    own = HTTP_PORT + (protocol == "grpc")
    url = f"{protocol}://127.0.0.1:{port}" if port else f"{protocol}://{triton.address}:{own}"
    made = Measurement(
        target=target.parse(url, api="kserve", transport=None, encoding=None, model=triton.model),
        scenario=scenario,
        sampling=sampling or SamplingSettings(servers=pages(triton), idle_s=0),
        **{"warm_up": WarmUp(1.0, fixed=True), **others},
    ).prepare()
    return made.document(made.run(), made_by="benchmarks")


def pages(*servers: Triton) -> tuple[Source, ...]:
    """Return the metrics of servers."""
    return tuple(Source(pod=one.address, url=f"http://{one.address}:{METRICS_PORT}/metrics") for one in servers)


def parts(document: BenchDocument) -> dict[str, float | None]:
    """Return the means of the phases in ms."""
    found = {} if document.phases is None else {part.name: part.mean.value for part in document.phases.parts}
    return {str(name): value for name, value in found.items()}


@contextlib.contextmanager
def function(seconds: float) -> Iterator[HookSettings]:
    """Yield a function that prepares a request and sleeps this long."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hook.py"
        path.write_text(
            "import time\nimport numpy as np\n\n"
            f"def prepare(number):\n    until = time.monotonic() + {seconds}\n    time.sleep({seconds})\n"
            "    return np.ones((1, 1), np.float32)\n"
        )
        yield HookSettings(prepare=f"{path}:prepare", processes=2)
