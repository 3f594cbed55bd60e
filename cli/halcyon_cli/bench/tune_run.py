"""A tuning run of a ModelDeployment, by points of a trial pod or by predictions from what the planner has learnt.

Out of scope: the choice and the evaluation of points (`halcyon_tune`), and the pod (`bench.trial`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from halcyon.api.spec import Spec
from halcyon.api.spec.parse import SpecError, parse
from halcyon.api.types import duration_s, quantity
from halcyon_cli.bench.options.inputs import InputOptions
from halcyon_cli.bench.options.load import LoadOptions
from halcyon_cli.bench.options.place import PlaceOptions
from halcyon_cli.bench.options.server import ServerOptions
from halcyon_cli.bench.place.bench_request import BenchRequest
from halcyon_cli.bench.trial.trial_session import TrialSession
from halcyon_cli.errors import InputError
from halcyon_cli.kube.object_writer import ObjectWriter
from halcyon_measure.inputs.payloads import Rows
from halcyon_tune import patch, result, traffic
from halcyon_tune.criterion import Criterion, Minimise
from halcyon_tune.points import Measuring
from halcyon_tune.prediction import Predictor
from halcyon_tune.result import TuneResult
from halcyon_tune.search import Budget, End, Search
from halcyon_tune.space import space
from halcyon_tune.steps import TITLES, point_text

Json = Mapping[str, Any]

_MORE_S = 300.0
"""Time in seconds for which the pod exists in addition to the budget. It is for the first load of the model, and for
unfinished points."""


@dataclass(frozen=True, kw_only=True)
class TuneRequest:
    """Options of `halcyon tune NAME`."""

    name: str
    objective_s: float | None = None
    rate_rps: float | None = None
    minimise: Minimise = "cost"
    budget_s: float = 600.0

    def objective(self, spec: Spec) -> float:
        """Return the objective: the given one, or the model's latency target.

        Raises:
            InputError: neither is set.
        """
        if self.objective_s is not None:
            return self.objective_s
        target = spec.scaling.targets.latency if spec.scaling is not None else None
        if not target:
            raise InputError(
                f"{self.name} has no spec.scaling.targets.latency; give the objective, for example --objective 60ms"
            )
        return duration_s(target)

    def criterion(self, spec: Spec, rows_per_request: float) -> Criterion:
        """Return the criterion of the search.

        Raises:
            InputError: latency is minimised, and no rate is given.
        """
        each = None
        if self.minimise == "latency":
            if self.rate_rps is None:
                raise InputError(
                    "--minimise latency is about the P99 at a rate; give the one of all replicas, for example --rate 2000"
                )
            each = self.rate_rps / max(spec.replicas, 1)
        predictor = Predictor(self.objective(spec), rows_per_request=rows_per_request)
        return Criterion(predictor=predictor, minimise=self.minimise, rate_each_rps=each)


def measured(
    cluster: ObjectWriter,
    request: TuneRequest,
    bench: click.Command,
    shown: Callable[[str], None],
    *,
    inputs: InputOptions,
    place: PlaceOptions,
) -> TuneResult:
    """Tune by points in a trial pod, whose client runs the command `bench`.

    Raises:
        InputError: the model can't be tuned, or the cluster would reject the pod.
        ClusterError, PlaceError, TuneError: the tuning run failed.
    """
    model = cluster.model(request.name)
    spec = _spec(request.name, model)
    rows = Rows.parse(inputs.rows or "1")
    criterion = request.criterion(spec, (rows.least + rows.most) / 2)
    placed = BenchRequest(
        name=request.name, server=ServerOptions(), load=LoadOptions(), inputs=inputs, place=place
    ).check()
    with TrialSession(cluster, model, placed, bench, run_s=request.budget_s + _MORE_S, progress=shown) as session:
        known = space(
            spec,
            session.config(),
            objective_s=criterion.predictor.objective_s,
            cores=_cores(spec),
            rows=(rows.least, rows.most),
        )
        search, end = run(
            Search.begin(known, criterion, Budget(seconds=request.budget_s)),
            session.points(known.thread_parameter),
            shown,
        )
    found = result.result(request.name, search, end, rate_rps=request.rate_rps)
    patch.checked(request.name, model["spec"], found.change)
    return found


def from_traffic(model: Json, request: TuneRequest) -> TuneResult:
    """Tune by predictions from what the planner has learnt, without a trial pod.

    Raises:
        InputError, TuneError: nothing is known, or the objective can't be kept.
    """
    if request.minimise != "cost":
        raise InputError(f"--from-traffic predicts rates alone; leave out --minimise {request.minimise}")
    spec = _spec(request.name, model)
    criterion = request.criterion(spec, 1.0)
    known = traffic.lines(model.get("status") or {})
    instances = spec.runtime.instances_per_gpu or min(known, default=1)
    largest = known[instances].largest if instances in known else 0
    config: dict[str, Any] = {"instance_group": [{"count": instances}]}
    if largest > 1:
        # Executed batches show that batching is on for the model.
        config |= {"max_batch_size": largest, "dynamic_batching": {}}
    configurations = space(spec, config, objective_s=criterion.predictor.objective_s)
    forecast = traffic.forecast(configurations, criterion, known, name=request.name)
    found = result.predicted(request.name, configurations, criterion, forecast, rate_rps=request.rate_rps)
    patch.checked(request.name, model["spec"], found.change)
    return found


def run(search: Search, measuring: Measuring, shown: Callable[[str], None]) -> tuple[Search, End]:
    """Measure the points that a search requests, until its end. Ctrl-C ends it with the best result so far.

    Raises:
        TuneError: no point can be measured any more, or the objective can't be kept.
    """
    step = 0
    try:
        while True:
            search, found = search.next()
            if isinstance(found, End):
                return search, found
            if found.step != step:
                step = found.step
                shown(f"step {step} of 6: {TITLES[step]}")
            point = measuring.measure(found.configuration, found.load)
            search = search.after(point)
            shown(point_text(point))
    except KeyboardInterrupt:
        search, found = search.interrupted().next()
        assert isinstance(found, End)  # noqa: S101  # an interrupted search has ended
        return search, found


def _spec(name: str, model: Json) -> Spec:
    try:
        return parse(name, model["spec"])
    except SpecError as error:
        raise InputError(f"{name}: its spec is invalid: {'; '.join(error.sentences)}") from None


def _cores(spec: Spec) -> float | None:
    """Return the CPU limit of a server pod in cores; None if it has no limit."""
    limits = spec.runtime.resources.limits
    return None if limits is None or limits.cpu is None else float(quantity(limits.cpu))
