"""Options for measuring a ModelDeployment, and the deadlines that follow from them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

import click

from halcyon.render import names
from halcyon_cli.bench.options.answer import AnswerOptions
from halcyon_cli.bench.options.group import repeatable
from halcyon_cli.bench.options.inputs import InputOptions
from halcyon_cli.bench.options.load import LoadOptions
from halcyon_cli.bench.options.place import PlaceOptions
from halcyon_cli.bench.options.sampling import SamplingOptions
from halcyon_cli.bench.options.server import ServerOptions
from halcyon_cli.bench.place import guard
from halcyon_cli.bench.place.beside_model import Deadlines
from halcyon_cli.errors import InputError

_WARM_UP_S, _END_S = 30.0, 60.0
_SEARCH_S = 480.0
"""Maximum duration of a search for the capacity, in seconds: six minutes of runs, and the time to start and finish each
run.
"""
_MIN_SWEEP_S = 4 * 3600.0
_ENGINES = 6
"""Time of a measurement with two engines, relative to one engine. perf_analyzer may take up to ten windows."""
_NOT_HERE = ("url", "model", "api_key_file", "ca", "server_name", "cert", "key")
"""Options for a server that is given by URL, which are invalid for a ModelDeployment."""


@dataclass(frozen=True, kw_only=True)
class BenchRequest:
    """Options of `halcyon bench NAME`."""

    name: str
    server: ServerOptions
    load: LoadOptions
    answer: AnswerOptions = field(default_factory=AnswerOptions)
    inputs: InputOptions
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    place: PlaceOptions

    def check(self) -> BenchRequest:
        """Return this request after checking that its options are valid for a ModelDeployment.

        Raises:
            InputError, MeasureError: an option is invalid.
        """
        self.place.check()
        self.answer.check()
        if self.place.live and self.answer.sweep:
            raise InputError("--live raises the rate in steps by itself; leave --sweep out, or measure a copy")
        if self.place.live and self.answer.engine != "halcyon":
            raise InputError(
                f"--engine {self.answer.engine} has no guard that protects the clients of a served model; leave --live out to "
                "measure a copy"
            )
        if self.place.teach and (self.load.has_load or self.answer.sweep or self.answer.against):
            raise InputError(
                "--teach needs the search for the capacity, without --rate, --callers, --sweep or --against; for example "
                f"halcyon bench {self.name} --teach"
            )
        self._sweep_s()
        self.sampling.settings()
        self.sampling.prices()
        if self.server.shared_memory != "none" and not self.place.trial:
            raise InputError(
                f"--shared-memory {self.server.shared_memory} needs client and server in one pod; add --trial"
            )
        for option in _NOT_HERE:
            if getattr(self.server, option):
                raise InputError(
                    f"--{option.replace('_', '-')} is for a server, and {self.name} is a ModelDeployment; leave one of them out"
                )
        if self.server.api != "kserve":
            raise InputError(f"--api {self.server.api} is for a server; a ModelDeployment speaks KServe v2")
        kind = self.load.build_scenario().kind
        self.load.build_warm_up()
        if self.place.live and kind not in {"blocking", "sustained"}:
            raise InputError(
                f"--live raises the rate in steps, so the scenario can't be {kind}; give --rate, the highest rate, or none"
            )
        return self

    def url(self, measured: str) -> str:
        """Return the URL of a host in the model's namespace.

        The scheme is grpc if the encoding is one for gRPC, otherwise http.
        """
        if self.server.encoding in {"raw", "typed"}:
            return f"grpc://{measured}:{names.GRPC_PORT}"
        return f"http://{measured}:{names.HTTP_PORT}"

    @property
    def measured_s(self) -> float:
        """Time during which requests of the load are due, in seconds."""
        scenario = self.load.build_scenario()
        return scenario.trace[-1] if scenario.kind == "trace" else scenario.duration_s

    def _sweep_s(self) -> float:
        """Return the planned time of a sweep in seconds; 0 if there is no sweep."""
        if not self.answer.sweep:
            return 0.0
        from halcyon_measure.sweep import grid  # noqa: PLC0415  # NumPy takes a while to import

        return grid.planned_s(self.answer.sweep, self.load.duration, is_confirmed=self.answer.yes)

    @property
    def steps_s(self) -> float:
        """Maximum time in seconds for the steps of --live, the points of a sweep, or a search; 0 for a single load."""
        if self.place.live:
            # At most 30 steps lead from half a request per second to the largest rate.
            return 30 * guard.STEP_S
        if self.answer.sweep:
            # Points of slow or full servers take longer than planned.
            return max(2 * self._sweep_s(), _MIN_SWEEP_S)
        return 0.0 if self.load.has_load else _SEARCH_S

    def repeat(self, command: click.Command) -> tuple[str, ...]:
        """Return the command line arguments that repeat this measurement."""
        return (
            self.name,
            *repeatable(command, self.server, self.load, self.answer, self.inputs, self.sampling, self.place),
        )


def deadlines(request: BenchRequest) -> Deadlines:
    """Return the times after which the command gives up on a measurement."""
    warm_up = max(request.load.build_warm_up().limit_s, _WARM_UP_S)
    run_s = request.measured_s + warm_up + request.steps_s + request.server.request_timeout + _END_S
    if request.answer.engine != "halcyon":
        run_s = _ENGINES * run_s
    return Deadlines(start_s=request.place.start_timeout, run_s=run_s)
