"""Client that measures several models in turns, in rounds of one load or with one run of each search at a time."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Self

from halcyon_cli.bench import from_here
from halcyon_cli.bench.options.answer import AnswerOptions
from halcyon_cli.bench.options.inputs import InputOptions
from halcyon_cli.bench.options.load import LoadOptions
from halcyon_cli.bench.options.pod import PodOptions
from halcyon_cli.bench.options.sampling import SamplingOptions
from halcyon_cli.bench.options.server import ServerOptions
from halcyon_cli.bench.place import log_result

if TYPE_CHECKING:
    from halcyon_measure.results.document import BenchDocument


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the models that are measured in turns, as the client receives it."""

    name: str
    """Name of the model in the comparison."""
    url: str
    model: str
    metrics_urls: Sequence[str] = ()
    balancer_metrics: Sequence[str] = ()
    pods: str = ""
    price_per_hour: float | None = None
    has_keys: bool = False
    """Whether requests to the model need an API key."""

    def to_json(self) -> str:
        """Return the JSON text for the option --side."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse the JSON text of the option --side."""
        return cls(**json.loads(text))


def run(
    *,
    server: ServerOptions,
    load: LoadOptions,
    answer: AnswerOptions,
    inputs: InputOptions,
    sampling: SamplingOptions,
    pod: PodOptions,
) -> int:
    """Measure the models of --side in turns, write their documents to the log, and return the exit status.

    With --against, there are two models. The first is the baseline, and the document of the second has the comparison.

    Raises:
        MeasureError: a process of the load failed, or two results can't be compared.
    """
    from halcyon_cli.bench import capacity_runs, comparison_runs  # noqa: PLC0415  # NumPy takes a while to import

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sides = [Side.from_json(text) for text in pod.sides]
    prepared = []
    for side in sides:
        side_server, side_sampling = _side_options(side, server, sampling)
        measurement = from_here.measurement(side_server, load, inputs, side_sampling)
        prepared.append((side.name, from_here.prepared_within(measurement, pod.wait or 0.0)))
    show: Callable[[str], None] = from_here.line_of_progress(to_log=pod.to_log)
    if answer.against:
        (first, baseline), (second, candidate) = prepared
        document = comparison_runs.in_turns(
            baseline, candidate, answer, has_load=load.has_load, show=show, named=(first, second)
        )[1]
        return _write([document])
    return _write([document for _, document in capacity_runs.run_in_turns(prepared, answer.percentile, show)])


def _side_options(
    side: Side, server: ServerOptions, sampling: SamplingOptions
) -> tuple[ServerOptions, SamplingOptions]:
    """Return the options with the settings of one model."""
    keys = server.api_key_file if side.has_keys else None
    read = replace(
        sampling,
        metrics_urls=tuple(side.metrics_urls),
        balancer_metrics=tuple(side.balancer_metrics),
        pods=side.pods,
        price_per_hour=side.price_per_hour,
    )
    return replace(server, url=side.url, model=side.model, api_key_file=keys), read


def _write(documents: Sequence[BenchDocument]) -> int:
    for number, document in enumerate(documents):
        for line in log_result.lines(log_result.document_name(number), document.model_dump_json().encode()):
            print(line)
    sys.stdout.flush()
    return 0 if all(document.run.valid for document in documents) else 1
