"""Result of a search: findings, best configuration, gain, patch, and the Pareto front of rate and P99. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from halcyon_tune.criterion import Criterion
from halcyon_tune.patch import patch
from halcyon_tune.points import Configuration, Point, Rate
from halcyon_tune.prediction import Predictor
from halcyon_tune.replica_count import replica_count
from halcyon_tune.results.steps import Step, steps
from halcyon_tune.search import End, Search
from halcyon_tune.space import BATCHING, LeftOut, Space
from halcyon_tune.traffic import Forecast

_MS = 1000.0
_MAX_LATE_SHARE = 0.05
"""Maximum delay with which 1 % of a measurement's requests may be sent without a note, as a share of the objective."""


@dataclass(frozen=True, kw_only=True)
class FrontPoint:
    """Measured rate and P99 of a configuration, as a point of a chart or of the Pareto front."""

    configuration: Configuration
    rate_rps: float
    p99_s: float


@dataclass(frozen=True, kw_only=True)
class TuneResult:
    """Result of a tuning run."""

    name: str
    objective_s: float
    minimise: str
    space: Space
    end: str
    """Way in which the search ended: decided, undecided, nothing to change, budget, interrupted, failed, or
    predicted."""
    why: str
    best: Configuration | None
    gain: float | None = None
    """Relative gain of the best configuration over the current settings; None if the two weren't compared."""
    gain_interval: tuple[float, float] | None = None
    capacity_rps: float | None = None
    """Highest rate of one replica with the best configuration within the objective, in requests per second.

    It is 0 if the replica can't meet the objective at any rate, and None if this is unknown. `today_rps` is the same
    value for the current settings.
    """
    today_rps: float | None = None
    rate_rps: float | None = None
    """Total rate of all replicas that the user gave, in requests per second; None if the user gave none."""
    replicas: int | None = None
    """Number of replicas for `rate_rps` with the best configuration, as calculated by the planner; None if it is
    unknown or above the site's limit."""
    replicas_today: int | None = None
    steps: tuple[Step, ...] = ()
    measured: tuple[FrontPoint, ...] = ()
    """All measurements at a rate whose P99 is at most twice the objective, sorted by rate."""
    front: tuple[FrontPoint, ...] = ()
    """Pareto front of `measured`: the measurements for which no other is better in both rate and P99."""
    notes: tuple[str, ...] = ()
    points: int = 0
    seconds: float = 0.0
    change: Mapping[str, Any] = field(default_factory=dict)
    """Merge patch of the model's spec; empty if no change is recommended."""
    canary: Mapping[str, Any] | None = None
    """Result of the canary that `--apply` started, including its end and the reason; None if the change wasn't
    applied."""

    @property
    def is_shown(self) -> bool:
        """Whether the result has a change that is better than the current settings according to the measurements."""
        return bool(self.change) and self.end == "decided"

    def document(self) -> dict[str, Any]:
        """Return the result as values for JSON, with times in milliseconds."""
        return {
            "model": self.name,
            "objective_ms": round(_MS * self.objective_s, 3),
            "minimise": self.minimise,
            "end": self.end,
            "why": self.why,
            "today": _configuration(self.space.today),
            "best": None if self.best is None else _configuration(self.best),
            "gain": self.gain,
            "gain_interval": None if self.gain_interval is None else list(self.gain_interval),
            "capacity_rps": self.capacity_rps,
            "capacity_today_rps": self.today_rps,
            "rate_rps": self.rate_rps,
            "replicas": self.replicas,
            "replicas_today": self.replicas_today,
            "patch": dict(self.change),
            **({} if self.canary is None else {"canary": dict(self.canary)}),
            "tuned": list(self.space.tuned),
            "left_out": [{"field": entry.field, "why": entry.why} for entry in self.space.left_out],
            "notes": list(self.notes),
            "front": [_point(point) for point in self.front],
            "measured": [_point(point) for point in self.measured],
            "steps": [{"step": step.number, "title": step.title, "found": list(step.findings)} for step in self.steps],
            "points": self.points,
            "seconds": round(self.seconds, 1),
        }  # fmt: skip


def result(name: str, search: Search, end: End, *, rate_rps: float | None = None) -> TuneResult:
    """Return the result of a search that has ended."""
    space, best = search.space, search.best()
    is_change = (
        best is not None and best != space.today and end.reason in {"decided", "undecided", "budget", "interrupted"}
    )
    gain = search.turns.gain() if search.turns is not None else None
    if end.reason in {"budget", "interrupted"} and gain is not None and gain.interval is not None and not gain.is_shown:
        is_change = is_change and gain.value > 0
    recommended = best if is_change else space.today
    verification = search.verification
    measured = rate_points(search.points, search.criterion.predictor.objective_s)
    counts = [
        None if rate_rps is None or verification is None else _replicas(search, configuration, rate_rps)
        for configuration in (recommended, space.today)
    ]
    return TuneResult(
        name=name,
        objective_s=search.criterion.predictor.objective_s,
        minimise=search.criterion.minimise,
        space=replace(space, left_out=(*space.left_out, *_preferred_left_out(search))),
        end=end.reason,
        why=end.why,
        best=recommended if verification is not None and verification.estimates else None,
        gain=None if gain is None or not is_change else gain.value,
        gain_interval=None if gain is None or not is_change else gain.interval,
        capacity_rps=_capacity(search, recommended),
        today_rps=_capacity(search, space.today),
        rate_rps=rate_rps,
        replicas=counts[0],
        replicas_today=counts[1],
        steps=steps(search, _replicas_text(rate_rps, counts)),
        measured=measured,
        front=front(measured),
        notes=_notes(search, recommended),
        points=len(search.points),
        seconds=search.seconds(),
        change=patch(space, recommended) if is_change and recommended is not None else {},
    )  # fmt: skip


def _preferred_left_out(search: Search) -> tuple[LeftOut, ...]:
    """Return the reason why preferred batch sizes weren't measured; empty if they were, or if batching isn't tuned."""
    verification = search.verification
    is_batching_tuned = verification is not None and search.best() is not None and BATCHING in search.space.tuned
    if (
        verification is None
        or not is_batching_tuned
        or any(configuration.preferred for configuration in verification.estimates)
    ):
        return ()
    sizes = search.preferred_sizes()
    why = (
        f"{', '.join(map(str, sizes))} take less time per row than larger ones, and weren't measured within the budget"
        if sizes
        else "no measured batch takes less time per row than a larger one, so no size is worth a preference"
    )
    return (LeftOut("batching.preferredBatchSizes", why),)


def _replicas_text(rate_rps: float | None, counts: Sequence[int | None]) -> str:
    if rate_rps is None or counts[0] is None:
        return ""
    today = "" if counts[1] is None else f", {counts[1]} with today's settings"
    return f"{counts[0]} for {rate_rps:g} requests/s by the planner's sizing{today}"


def predicted(
    name: str, space: Space, criterion: Criterion, forecast: Forecast, *, rate_rps: float | None = None
) -> TuneResult:
    """Return a result that is predicted from the model's traffic, without measurements."""
    is_change = forecast.best != space.today
    best_rps, today_rps = forecast.rates[forecast.best], forecast.rates[space.today]
    counts = [
        _forecast_replicas(criterion.predictor, forecast, configuration, rate_rps, space.max_replicas)
        for configuration in (forecast.best, space.today)
    ]
    notes = ["predicted from what the planner has learnt, and not measured: no interval is known"]
    if forecast.extrapolates(forecast.best):
        notes.append(
            f"batches of more than {forecast.lines[forecast.best.instances].largest} rows were never executed; they lie on the line as far as is known"
        )
    return TuneResult(
        name=name,
        objective_s=criterion.predictor.objective_s,
        minimise=criterion.minimise,
        space=space,
        end="predicted" if is_change else "nothing to change",
        why="" if is_change else "no other settings are predicted to be better than today's",
        best=forecast.best,
        gain=best_rps / today_rps - 1 if is_change and today_rps else None,
        capacity_rps=best_rps,
        today_rps=today_rps,
        rate_rps=rate_rps,
        replicas=counts[0],
        replicas_today=counts[1],
        notes=tuple(notes),
        change=patch(space, forecast.best) if is_change else {},
    )  # fmt: skip


def _forecast_replicas(
    predictor: Predictor, forecast: Forecast, configuration: Configuration, rate_rps: float | None, max_replicas: int
) -> int | None:
    if rate_rps is None or not forecast.rates[configuration]:
        return None
    replica = predictor.replica(forecast.lines[configuration.instances].line, configuration)
    return replica_count(rate_rps, replica, objective_s=predictor.objective_s, most=max_replicas)


def rate_points(points: Sequence[Point], objective_s: float) -> tuple[FrontPoint, ...]:
    """Return the measurements at a rate, sorted by rate.

    Measurements with a P99 above twice the objective are omitted. The P99 of an overloaded replica shows only how long
    the overload lasted.
    """
    front_points = [
        FrontPoint(configuration=point.configuration, rate_rps=point.throughput_rps, p99_s=point.p99_s)
        for point in points
        if isinstance(point.load, Rate) and point.failure is None and point.p99_s <= 2 * objective_s
    ]
    return tuple(sorted(front_points, key=lambda point: (point.rate_rps, point.p99_s)))


def front(measured: Sequence[FrontPoint]) -> tuple[FrontPoint, ...]:
    """Return the Pareto front: the measurements for which no other is better in both rate and P99."""
    best: list[FrontPoint] = []
    for point in sorted(measured, key=lambda point: (-point.rate_rps, point.p99_s)):
        if not best or point.p99_s < best[-1].p99_s:
            best.append(point)
    return tuple(best[::-1])


def _capacity(search: Search, configuration: Configuration | None) -> float | None:
    verification = search.verification
    if verification is None or configuration is None or configuration not in verification.estimates:
        return None
    return verification.opinion(configuration).capacity_rps


def _replicas(search: Search, configuration: Configuration | None, rate_rps: float) -> int | None:
    verification = search.verification
    if configuration is None or verification is None or configuration not in verification.estimates:
        return None
    shape = search.shape(configuration)
    if shape is None:
        return None
    predictor = search.criterion.predictor
    replica = predictor.replica(shape, configuration, verification.factor(configuration))
    return replica_count(rate_rps, replica, objective_s=predictor.objective_s, most=search.space.max_replicas)


def _notes(search: Search, recommended: Configuration | None) -> tuple[str, ...]:
    verification, notes = search.verification, list[str]()
    if verification is not None and verification.halving:
        notes.append(
            f"predictions were off by {100 * verification.worst_surprise:.0f} %, so the neighbourhood of the best was searched by points"
        )
    failed = [point for point in search.points if point.failure is not None]
    notes += [f"{point.configuration.text()} is out: {point.why}" for point in failed]
    notes += _late_client(search)
    if recommended is not None and recommended.max_batch < search.space.today.max_batch:
        notes.append(f"with maxBatchSize {recommended.max_batch}, Triton rejects requests with more rows than that")
    return tuple(dict.fromkeys(notes))


def _late_client(search: Search) -> list[str]:
    """Return a note if the client sent requests late in some measurements; empty if it didn't."""
    negligible_s = _MAX_LATE_SHARE * search.criterion.predictor.objective_s
    late_s = [
        point.late_p99_s for point in search.points if isinstance(point.load, Rate) and point.late_p99_s > negligible_s
    ]
    if not late_s:
        return []
    late = f"in {len(late_s)} of {len(search.points)} measurements, the client sent requests late, 1 % of them by"
    advice = "This counts as latency, so the rates may be too low. A node with more free cores would avoid it"
    return [f"{late} {_MS * max(late_s):.0f} ms or more. {advice}"]


def _point(point: FrontPoint) -> dict[str, Any]:
    return {
        "configuration": _configuration(point.configuration),
        "rate_rps": point.rate_rps,
        "p99_ms": _MS * point.p99_s,
    }


def _configuration(configuration: Configuration) -> dict[str, Any]:
    return {
        "instances": configuration.instances,
        "max_batch": configuration.max_batch,
        "delay_ms": round(_MS * configuration.delay_s, 3),
        "preferred": list(configuration.preferred),
        "threads": configuration.threads,
    }
