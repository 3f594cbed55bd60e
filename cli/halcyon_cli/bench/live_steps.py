"""Measurement of a served model in steps with rising rates, up to the highest rate or until clients are affected.

Out of scope: the bounds that protect clients, and the choice of rates (`place.guard`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from halcyon_cli.bench.place import guard
from halcyon_cli.bench.place.guard import ClientBounds, Step
from halcyon_cli.errors import Failure

if TYPE_CHECKING:
    from halcyon_measure.measurement import Measurement
    from halcyon_measure.results.run import Run
    from halcyon_measure.results.settling import Block


_INTERRUPTED = "it was interrupted"


class GuardError(Failure):
    """The served model must not be put under load, in order to protect its clients."""


def run(prepared: Measurement, latency_s: float | None, show: Callable[[str], None]) -> tuple[Measurement, Run, str]:
    """Raise the rate in steps, and return the last step within the bounds, its run, and the reason why the steps ended.

    The highest rate is that of the scenario. If the scenario has no rate, only the bounds end the measurement. At the
    highest rate, the scenario's whole duration is measured. Ctrl-C ends the steps, and the returned run is partial.

    Raises:
        GuardError: no request of the first step was answered.
        MeasureError: a process of the load failed.
    """
    from halcyon_measure.schedule.scenario import MAX_RATE_RPS, Scenario  # noqa: PLC0415

    scenario = prepared.scenario
    highest = scenario.rate_rps or MAX_RATE_RPS
    base = Scenario(kind="blocking", duration_s=guard.STEP_S, seed=scenario.seed)
    measurement = replace(prepared, scenario=base, warm_up=_no_warm_up())
    result = measurement.run(_client_watch(0.0, None, show)[0])
    first_step = _step(result, result.count / guard.STEP_S)
    limits = guard.bounds(first_step, latency_s)
    if limits is None:
        reason = _INTERRUPTED if result.partial else "; ".join(result.messages[:3])
        raise GuardError(f"no request of one caller was answered, so the served model isn't put under load: {reason}")
    steps: list[Step] = []
    why = _INTERRUPTED if result.partial else ""
    last_step = measurement, result
    while not why and (rate := guard.next_rate(first_step, steps, limits, highest)) is not None:
        at_goal = rate >= highest
        duration = max(scenario.duration_s, guard.STEP_S) if at_goal else guard.STEP_S
        step = replace(scenario, kind="sustained", rate_rps=rate, to_rps=None, callers=1, duration_s=duration)
        measurement = replace(
            prepared, scenario=step, warm_up=_no_warm_up(), target=_with_short_timeout(prepared, limits)
        )
        watch, reasons = _client_watch(rate, limits, show)
        try:
            result = measurement.run(watch)
        except KeyboardInterrupt:
            reasons.append(_INTERRUPTED)
        if reasons or result.partial:
            why = next(iter(reasons), _INTERRUPTED)
        else:
            steps.append(_step(result, rate))
            why = guard.crossed(steps[-1], limits)
        if not why:
            last_step = measurement, result
    measurement, result = last_step
    return measurement, replace(result, partial=why == _INTERRUPTED), why


def _no_warm_up() -> Any:
    from halcyon_measure.engine.pool import WarmUp  # noqa: PLC0415

    return WarmUp(0.0, fixed=True)


def _with_short_timeout(prepared: Measurement, limits: ClientBounds) -> Any:
    """Return the target with a short request timeout, so that a step ends soon after its last request was sent."""
    return replace(prepared.target, timeout_s=min(prepared.target.timeout_s, max(2 * limits.p95_s, 2.0)))


def _step(result: Run, rate_rps: float) -> Step:
    from halcyon_measure.protocols.reply import Outcome  # noqa: PLC0415
    from halcyon_measure.results import tally  # noqa: PLC0415

    latency, outcomes = tally.answered(result)["latency"], tally.outcomes(result)
    return Step(rate_rps, result.count, result.count - outcomes[Outcome.ANSWERED], latency.percentile(0.95))


def _client_watch(
    rate_rps: float, limits: ClientBounds | None, show: Callable[[str], None]
) -> tuple[Callable[[str, float, Block], bool], list[str]]:
    """Return a function that ends the run when it exceeds a bound for clients, and a list of the reasons."""
    seconds: list[tuple[int, int, float | None]] = []
    reasons: list[str] = []

    def watch(_: str, at_s: float, block: Block) -> bool:
        seconds.append((block.answered, block.failed, block.median_s))
        show(f"{rate_rps:.3g} requests/s for {at_s:.0f} s: {block.answered} answered, {block.failed} failed")
        if limits is not None and not reasons and (reason := guard.crossed_within(seconds, rate_rps, limits)):
            reasons.append(reason)
        return bool(reasons)

    return watch, reasons
