"""Options for the load: its scenario, its warm-up, and the processes that generate it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from halcyon_cli.arguments.options import DURATION
from halcyon_cli.bench.options.group import option_group
from halcyon_cli.errors import InputError

if TYPE_CHECKING:
    from halcyon_measure.engine.pool import WarmUp
    from halcyon_measure.schedule.scenario import Kind, Scenario

_KINDS = ("blocking", "sustained", "burst", "ramp", "trace", "offline")
_PRESETS = ("singlestream", "multistream", "server", "offline")


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """Values of the options for the load. If an option is None, the scenario determines the value."""

    scenario: Kind | None = None
    preset: str | None = None
    duration: float | None = None
    requests: int | None = None
    callers: int | None = None
    think: float | None = None
    rate: float | None = None
    to_rps: float | None = None
    cv: float | None = None
    on_s: float | None = None
    off_s: float | None = None
    trace: Path | None = None
    scale: float = 1.0
    max_in_flight: int = 4096
    seed: int = 1
    objective: float | None = None
    warm_up: str = ""
    processes: int | None = None

    @property
    def has_load(self) -> bool:
        """Whether the options describe a load. If they don't, the command searches for the capacity."""
        load = (self.scenario, self.preset, self.duration, self.requests, self.callers, self.think, self.rate)
        shape = (self.to_rps, self.cv, self.on_s, self.off_s, self.trace)
        return any(value is not None for value in (*load, *shape))

    def build_scenario(self) -> Scenario:
        """Return the scenario that the options describe.

        Raises:
            MeasureError, InputError: an option is invalid, or has no effect in this scenario.
        """
        from halcyon_measure.schedule import trace_file  # noqa: PLC0415
        from halcyon_measure.schedule.scenario import PRESETS, Scenario  # noqa: PLC0415

        overrides = {
            "duration_s": self.duration,
            "requests": self.requests,
            "callers": self.callers,
            "think_s": self.think,
            "rate_rps": self.rate,
            "to_rps": self.to_rps,
            "cv": self.cv,
            "on_s": self.on_s,
            "off_s": self.off_s,
            "trace": None
            if self.trace is None
            else self._within_duration(trace_file.read(self.trace, scale=self.scale)),
        }
        if self.preset:
            base = Scenario(**PRESETS[self.preset][1])
            if self.scenario not in {None, base.kind}:
                raise InputError(
                    f"preset {self.preset} is scenario {base.kind}, not {self.scenario}; leave one of them out"
                )
        else:
            base = Scenario(kind=self.scenario or self._implied())
            if base.kind == "offline":
                base = replace(base, callers=256, duration_s=600.0)
        if self.callers is not None and base.kind not in {"blocking", "offline"}:
            raise InputError(
                f"--callers has no effect in scenario {base.kind}, whose schedule decides when requests are sent; leave it "
                "out, or limit the requests in flight, for example --max-in-flight 32"
            )
        if self.scale != LoadOptions.scale and self.trace is None:
            raise InputError("--scale is of a trace; for example --trace FILE.csv --scale 2")
        changes = {name: value for name, value in overrides.items() if value is not None}
        return replace(base, **changes, max_in_flight=self.max_in_flight, seed=self.seed).check()  # type: ignore[arg-type]  # each is of its field's type

    def _within_duration(self, trace: tuple[float, ...]) -> tuple[float, ...]:
        """Return the arrivals of a trace before --duration; all arrivals if this option isn't given.

        Raises:
            InputError: there is no arrival between 0 and --duration.
        """
        if self.duration is None:
            return trace
        arrivals = tuple(time for time in trace if time < self.duration)
        if not arrivals or arrivals[-1] <= 0:
            second = next(time for time in trace if time > 0)
            raise InputError(
                f"--duration is {self.duration:g} s, and the second arrival of {self.trace} is at {second:g} s; leave --duration "
                f"out, or give a longer one, for example --duration {math.ceil(second) + 1}s"
            )
        return arrivals

    def _implied(self) -> Kind:
        """Return the kind of scenario that the given options imply."""
        if self.trace is not None:
            return "trace"
        if self.to_rps is not None:
            return "ramp"
        if self.cv is not None or self.on_s is not None or self.off_s is not None:
            return "burst"
        return "sustained" if self.rate is not None else "blocking"

    def build_warm_up(self) -> WarmUp:
        """Return the warm-up that the options describe.

        Raises:
            InputError: the value of --warm-up isn't a duration.
        """
        from halcyon.api.types import duration_s  # noqa: PLC0415
        from halcyon_measure.engine.pool import WarmUp  # noqa: PLC0415

        if not self.warm_up:
            return WarmUp()
        if self.warm_up == "0":
            return WarmUp(0.0, fixed=True)
        try:
            return WarmUp(duration_s(self.warm_up), fixed=True)
        except ValueError as error:
            raise InputError(f"--warm-up: {error}") from None


load_options = option_group(
    "load",
    LoadOptions,
    click.option("--scenario", type=click.Choice(_KINDS), help="Kind of load."),
    click.option("--preset", type=click.Choice(_PRESETS), help="A common load."),
    click.option(
        "--duration",
        type=DURATION,
        metavar="TIME",
        help="Measured time, after warm-up. Default: 10s, or the whole trace.",
    ),
    click.option("--requests", type=int, metavar="N", help="Largest number of measured requests."),
    click.option("--callers", type=int, metavar="N", help="Callers at a time. Default: 1."),
    click.option("--think", type=DURATION, metavar="TIME", help="Pause of a caller after its answer."),
    click.option("--rate", type=float, metavar="R", help="Requests per second."),
    click.option("--to", "to_rps", type=float, metavar="R", help="Requests per second at the end of a ramp."),
    click.option(
        "--cv", type=float, metavar="C", help="Coefficient of variation of the gaps of a burst; 1 is Poisson."
    ),
    click.option("--on", "on_s", type=DURATION, metavar="TIME", help="Length of the busy phases of a burst."),
    click.option("--off", "off_s", type=DURATION, metavar="TIME", help="Length of its idle phases."),
    click.option("--trace", type=click.Path(path_type=Path), metavar="FILE", help="Arrival times: .csv or .csv.gz."),
    click.option(
        "--scale",
        type=float,
        default=LoadOptions.scale,
        metavar="N",
        help="Play a trace N times as fast. Default: 1.",
    ),
    click.option(
        "--max-in-flight",
        type=int,
        default=LoadOptions.max_in_flight,
        metavar="N",
        help="Requests in flight above which a due one counts as not sent. Default: 4096.",
    ),
    click.option(
        "--seed", type=int, default=LoadOptions.seed, metavar="N", help="Seed of arrivals and values. Default: 1."
    ),
    click.option(
        "--objective",
        type=DURATION,
        metavar="TIME",
        help="Latency up to which an answer is good. Default: the latency target of a ModelDeployment.",
    ),
    click.option(
        "--warm-up",
        default="",
        metavar="TIME",
        help="Fixed warm-up; 0 for none. Default: until rate and median have settled, at most 30s.",
    ),
    click.option(
        "--processes",
        type=int,
        metavar="N",
        help="Processes that send. Default: as many as the load needs, at most one for each core.",
    ),
)
