"""One measurement of a target, from its settings to its document.

This module is the interface of the package for commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from halcyon_measure.breakdown import sections
from halcyon_measure.breakdown.energy import Prices
from halcyon_measure.cores import usable_cores
from halcyon_measure.engine import hooks
from halcyon_measure.engine.hooks import HookSettings
from halcyon_measure.engine.job import FOLD_ABOVE, Job, PayloadSettings
from halcyon_measure.engine.pool import MAX_PROCESSES, Pool, Progress, WarmUp, processes_for
from halcyon_measure.errors import ScenarioError, TargetError, TensorError
from halcyon_measure.inputs import array_file
from halcyon_measure.protocols import connect, shared_memory
from halcyon_measure.protocols.reply import Outcome
from halcyon_measure.protocols.target import Target
from halcyon_measure.results import summary
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.observations import ServerConfig
from halcyon_measure.results.run import Run
from halcyon_measure.sampling import server_statistics
from halcyon_measure.sampling.sampler import Sampler, SamplingSettings
from halcyon_measure.schedule.scenario import Scenario

_NO_INPUTS = (
    "{url} publishes no inputs of {model}, so no request can be made from them. Add them to the model's metadata, or send a "
    "whole request, for example --url {url}/v2/models/{model}/infer --api post --input request.json --content-type "
    "application/json"
)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Settings of a measurement: target, load, payloads and sampling."""

    target: Target
    scenario: Scenario
    preset: str = ""
    payload: PayloadSettings = field(default_factory=PayloadSettings)
    hooks: HookSettings = field(default_factory=HookSettings)
    warm_up: WarmUp = field(default_factory=WarmUp)
    processes: int | None = None
    """Number of sending processes; None to use as many as the load needs."""
    objective_s: float | None = None
    """Latency objective in seconds. An answer within it counts as good."""
    expect: str = ""
    """Path of an .npz file with the outputs that every answer must have; empty for no check."""
    pod_header: str = ""
    """Name of the response header that names the replica; empty for none."""
    sampling: SamplingSettings | None = field(default_factory=SamplingSettings)
    """Settings for sampling servers and machines during the load; None for no sampling."""
    prices: Prices = field(default_factory=Prices)
    fold_above: int = FOLD_ABOVE
    """Number of requests above which they are counted in a histogram instead of being kept as rows."""

    def prepare(self) -> Measurement:
        """Return this measurement with the model's inputs filled in. Check that it is possible.

        Raises:
            MeasureError: the server can't be reached, or a setting, a file or a function is invalid.
        """
        self.scenario.check()
        self.target.tls.check()
        hooks.check(self.hooks)
        self.prices.check()
        if self.sampling is not None:
            self.sampling.check()
        if self.processes is not None and not 1 <= self.processes <= MAX_PROCESSES:
            raise ScenarioError(f"processes is {self.processes}; it must be 1 to {MAX_PROCESSES}, for example 2")
        if self.scenario.kind == "offline" and self.scenario.requests is None:
            raise ScenarioError("scenario offline needs a number of requests; for example --requests 10000")
        if self.target.api == "post" and not self.payload.samples:
            raise TensorError("api post needs the body of its requests; for example --input picture.jpg")
        expected = _expected_names(self.expect) if self.expect else ()
        if self.target.shared_memory != "none":
            shared_memory.check(self.target, has_functions=bool(self.hooks.prepare or self.hooks.finish))
        target = connect.described(self.target)
        if not target.inputs and target.api == "kserve":
            raise TargetError(_NO_INPUTS.format(url=target.url, model=target.model))
        outputs = [output.name for output in target.outputs]
        if unknown := [name for name in expected if outputs and name not in outputs]:
            raise TensorError(
                f"{self.expect}: {target.model} has no output {unknown[0]}; it has {', '.join(outputs)}, for example "
                f"numpy.savez('expected.npz', {outputs[0]}=array)"
            )
        config = server_statistics.read_config(target)
        # The metadata doesn't say which inputs are optional.
        inputs = tuple(
            replace(model_input, is_optional=model_input.name in config.optional) for model_input in target.inputs
        )
        target = replace(target, inputs=inputs)
        self._check_model(target, config)
        return replace(self, target=target)

    def _check_model(self, target: Target, config: ServerConfig) -> None:
        """Check that the target's model, with this configuration, accepts the requests.

        Raises:
            MeasureError: the model doesn't accept them, or a file doesn't fit.
        """
        if config.is_decoupled:
            raise ScenarioError(
                f"{target.model} may send several answers to one request (decoupled in its config.pbtxt), and a bench has one "
                f"answer for each request: the server would reject them. What can be measured: other models on the same "
                f"server, and {target.model} with perf_analyzer --streaming"
            )
        if config.keeps_state:
            raise ScenarioError(
                f"{target.model} keeps state between requests (sequence_batching in its config.pbtxt), and the requests of a bench "
                "form no sequences: the server would reject them. What can be measured: models without state on the same "
                f"server, and {target.model} with perf_analyzer --sequence-length"
            )
        if not self.hooks.prepare:
            # Read the files now, so that an error is found before any process is started.
            rows = max((payload.rows for payload in self.payload.payloads(target)), default=1)
            if config.most_rows is not None and rows > config.most_rows:
                raise TensorError(
                    f"a request has {rows} rows, but {target.model} takes at most {config.most_rows} (max_batch_size in its "
                    f"config.pbtxt); for example --rows {config.most_rows}"
                )

    def run(self, progress: Progress | None = None) -> Run:
        """Run the load of a prepared measurement.

        Raises:
            MeasureError: a process of the load failed.
        """
        count = self.processes or processes_for(self.scenario, usable_cores())
        if not self.scenario.is_open:
            count = min(count, self.scenario.callers)
        job = Job(
            target=self.target,
            scenario=self.scenario,
            payload=self.payload,
            hooks=self.hooks,
            expect=self.expect,
            pod_header=self.pod_header,
            late_after_s=self.objective_s,
            fold_above=self.fold_above,
        )
        sampler = None if self.sampling is None else Sampler(self.target, self.sampling)
        if sampler is None:
            with Pool(job, count) as pool:
                return pool.run(warm_up=self.warm_up, progress=progress)
        try:
            sampler.idle()
            with Pool(job, count) as pool:
                run = pool.run(warm_up=self.warm_up, progress=progress, observer=sampler)
        finally:
            sampler.close()
        return replace(run, observations=sampler.observations())

    def _rows(self, run: Run) -> str:
        """Return the number of rows of a request, or the range of the numbers if they differ."""
        least, most = self.payload.rows.least, self.payload.rows.most
        if self.payload.samples or self.hooks.prepare:  # files and functions have their own rows
            sent = run.columns.rows[run.columns.outcome == Outcome.ANSWERED]
            if run.folded is not None and run.folded.rows:
                least, most = int(run.folded.least_rows), int(run.folded.most_rows)
            elif len(sent):
                least, most = int(sent.min()), int(sent.max())
        return f"{least}" if least == most else f"{least}..{most}"

    def document(self, run: Run, *, made_by: str) -> BenchDocument:
        """Return the document of a run that has just ended."""
        document = summary.build(
            run,
            self.target,
            self.scenario,
            preset=self.preset,
            rows=self._rows(run),
            objective_s=self.objective_s,
            prepares=bool(self.hooks.prepare),
            program=made_by,
            timestamp=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        )
        if self.expect:
            document = document.model_copy(update={"accuracy": summary.accuracy(document.requests)})
        in_flight = 0 if self.scenario.is_open else self.scenario.callers
        return sections.added(
            document,
            run,
            prices=self.prices,
            prepares=bool(self.hooks.prepare),
            finishes=bool(self.hooks.finish),
            in_flight=in_flight,
        )


def save(folder: Path, document: BenchDocument, run: Run) -> Sequence[Path]:
    """Write bench.json and the requests to a folder, which is created if needed, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    result = folder / "bench.json"
    result.write_text(document.model_dump_json(indent=2) + "\n", "utf-8")
    return result, run.save(folder)


def _expected_names(path: str) -> list[str]:
    """Return the names of the outputs in a file with expected outputs.

    Raises:
        TensorError: the file isn't an .npz file with outputs.
    """
    try:
        names = [*array_file.arrays(Path(path))]
    except ValueError as error:
        raise TensorError(f"{path}: not an .npz file with outputs by name: {error}") from None
    if names in ([], [""]):
        raise TensorError(f"{path}: it has no output; numpy.savez('expected.npz', NAME=array) writes one")
    return names
