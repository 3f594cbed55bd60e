"""Result of a tuning run as text. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from halcyon_measure.results.number_text import significant
from halcyon_tune.patch import command
from halcyon_tune.points import Configuration
from halcyon_tune.results.tune_result import TuneResult

_LABEL = 10
_ENDS = {
    "decided": "shown to be better",
    "undecided": "not decided",
    "nothing to change": "nothing to change",
    "budget": "the budget is used up",
    "interrupted": "interrupted",
    "failed": "failed",
    "predicted": "predicted",
}


def page(result: TuneResult, namespace: str) -> str:
    """Return the result of a tuning run as text."""
    lines = [f"{result.name}: least {result.minimise} within {significant(1000 * result.objective_s, 4)} ms", ""]
    for step in result.steps:
        lines.append(f"{step.number}  {step.title}")
        lines += [f"   {sentence}" for sentence in step.findings]
    lines += ["", *(f"{label:<{_LABEL}}{text}" for label, text in summary(result))]
    if result.front:
        lines += ["", "measured points that no other one beats:", f"{'RATE':>10} {'P99':>9}  CONFIGURATION"]
        lines += [
            f"{significant(point.rate_rps, 4):>8}/s {significant(1000 * point.p99_s, 4):>6} ms  {point.configuration.text()}"
            for point in result.front
        ]
    if result.space.left_out:
        lines += ["", "left as they are:", *(f"  {entry.field}: {entry.why}" for entry in result.space.left_out)]
    lines += ["", *(f"note: {note}" for note in result.notes)] if result.notes else []
    if result.change:
        lines += ["", command(result.name, namespace, result.change)]
    return "\n".join(lines)  # fmt: skip


def end_text(result: TuneResult) -> str:
    """Return a phrase that describes how a tuning run ended, with the reason."""
    return _ENDS[result.end] + (f": {result.why}" if result.why else "")


def summary(result: TuneResult) -> Iterator[tuple[str, str]]:
    """Yield the summary of a tuning result as pairs of a label and a text."""
    yield "result", end_text(result)
    is_change = bool(result.change)
    if result.best is not None and is_change:
        yield ("best", _with_rate(result.best, result.capacity_rps))
    yield ("today", _with_rate(result.space.today, result.today_rps))
    if result.gain is not None:
        bounds = result.gain_interval
        interval = "" if bounds is None else f", 95 % interval {_percent(bounds[0])} to {_percent(bounds[1])}"
        yield ("gain", _percent(result.gain) + interval)
    if result.rate_rps is not None:
        counts = f"{_count(result.replicas)} for {result.rate_rps:g} requests/s"
        yield ("replicas", counts + (f", today {_count(result.replicas_today)}" if is_change else ""))
    if result.points:
        yield ("measured", f"{result.points} points in {result.seconds / 60:.1f} min")


def _with_rate(configuration: Configuration, rate_rps: float | None) -> str:
    if rate_rps is None:
        rate_text = "not measured"
    elif rate_rps > 0:
        rate_text = f"{significant(rate_rps, 4)} requests/s of one replica within the objective"
    else:
        rate_text = "keeps the objective at no rate"
    return f"{configuration.text()}: {rate_text}"


def _count(replicas: int | None) -> str:
    return "unknown" if replicas is None else str(replicas)


def _percent(value: float) -> str:
    return f"{100 * value:+.0f} %"
