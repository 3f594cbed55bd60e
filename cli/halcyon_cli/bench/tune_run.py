"""A tuning run of a ModelDeployment, based on measured points in a trial pod or on predictions from the planner's data.

Out of scope: choosing and evaluating points (`halcyon_tune`), and the pod (`bench.trial`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import isfinite
from typing import Any

import click

from halcyon.api.documents.measured_capacity import MeasuredCapacity
from halcyon.api.spec import Spec
from halcyon.api.spec.parse import SpecError, parse
from halcyon.api.types import duration_s, quantity
from halcyon.kube import kinds
from halcyon_cli.bench.options.inputs import InputOptions
from halcyon_cli.bench.options.load import LoadOptions
from halcyon_cli.bench.options.place import PlaceOptions
from halcyon_cli.bench.options.server import ServerOptions
from halcyon_cli.bench.place.bench_request import BenchRequest
from halcyon_cli.bench.records import teach
from halcyon_cli.bench.trial.trial_session import TrialServer, TrialSession
from halcyon_cli.errors import Failure, InputError
from halcyon_cli.kube.object_writer import ObjectWriter
from halcyon_measure.errors import MeasureError
from halcyon_measure.inputs.payloads import Rows
from halcyon_tune import rejections, traffic
from halcyon_tune.criterion import Criterion, Minimise
from halcyon_tune.patch import checked, patch
from halcyon_tune.points import Measuring
from halcyon_tune.prediction import Predictor
from halcyon_tune.results import tune_result
from halcyon_tune.results.steps import TITLES, point_text
from halcyon_tune.results.taught_lines import taught_lines
from halcyon_tune.results.tune_result import TuneResult
from halcyon_tune.search import Budget, End, Search
from halcyon_tune.space import Space, space

Json = Mapping[str, Any]

_EXTRA_S = 300.0
"""Time in seconds for which the pod exists in addition to the budget, for the first load of the model and for
unfinished points."""


@dataclass(frozen=True, kw_only=True)
class TuneRequest:
    """Options of `halcyon tune NAME`."""

    name: str
    objective_s: float | None = None
    rate_rps: float | None = None
    minimise: Minimise = "cost"
    budget_s: float = 600.0

    def check(self) -> TuneRequest:
        """Return this request after checking it.

        Raises:
            InputError: an option is invalid.
        """
        if self.rate_rps is not None and not isfinite(self.rate_rps):
            raise InputError(f"--rate {self.rate_rps} must be a number of requests per second, for example --rate 2000")
        return self

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
            InputError: latency is to be minimised without a given rate, or energy for a model without a GPU.
        """
        rate_each_rps = None
        if self.minimise == "energy" and not spec.runtime.gpus:
            raise InputError(
                f"--minimise energy needs a GPU whose power Triton reports, and {self.name} runs on CPUs; minimise the cost instead, "
                "which is the default"
            )
        if self.minimise == "latency":
            if self.rate_rps is None:
                raise InputError(
                    "--minimise latency is about the P99 at a rate; give the one of all replicas, for example --rate 2000"
                )
            rate_each_rps = self.rate_rps / max(spec.replicas, 1)
        predictor = Predictor(self.objective(spec), rows_per_request=rows_per_request)
        return Criterion(predictor=predictor, minimise=self.minimise, rate_each_rps=rate_each_rps)


@dataclass(frozen=True, kw_only=True)
class MeasuredTune:
    """Result of a tuning run with measured points."""

    result: TuneResult
    search: Search
    server: TrialServer

    def capacity(self, *, revision: str = "") -> MeasuredCapacity:
        """Return the measured capacity of one replica.

        It is that of the current settings; if `revision` is given, that of the best settings, which this revision has.

        Raises:
            InputError, TuneError: the measurement can't be used; the message gives the reason.
        """
        best = self.result.best if revision else None
        return teach.of_server(
            taught_lines(self.search, best or self.search.space.today),
            revision=revision or self.server.revision,
            image=self.server.image,
            gpu_product=self.server.gpu_product,
            measured_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            source="tune",
        )


def measured(
    cluster: ObjectWriter,
    request: TuneRequest,
    bench: click.Command,
    show: Callable[[str], None],
    *,
    inputs: InputOptions,
    place: PlaceOptions,
) -> MeasuredTune:
    """Tune by measuring points in a trial pod, whose client runs the command `bench`.

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
    with TrialSession(cluster, model, placed, bench, run_s=request.budget_s + _EXTRA_S, progress=show) as session:
        configurations = space(
            spec,
            session.config(),
            objective_s=criterion.predictor.objective_s,
            cores=_cores(spec),
            rows=(rows.least, rows.most),
        )
        configurations = permitted(
            configurations, lambda change: cluster.rejection(kinds.MODEL_DEPLOYMENT, request.name, change)
        )
        search, end = run(
            Search.begin(configurations, criterion, Budget.of(request.budget_s)),
            session.points(configurations.thread_parameter),
            show,
        )
        server = session.server()
    result = tune_result.result(request.name, search, end, rate_rps=request.rate_rps)
    checked(request.name, model["spec"], result.change)
    return MeasuredTune(result=_with_limit(result, spec), search=search, server=server)


def permitted(configurations: Space, rejection: Callable[[Json], str]) -> Space:
    """Return the search space without the values that the site rejects, for example by an admission policy.

    `rejection` returns the reason why a patch of the model would be rejected; empty if it would be accepted.
    """
    rejected = []
    for trial in rejections.tried_values(configurations):
        change = patch(configurations, trial.configuration)
        if change and (why := rejection(change)):
            rejected.append((trial, why))
    return rejections.without(configurations, rejected)


def _with_limit(result: TuneResult, spec: Spec) -> TuneResult:
    """Return the result, with a note if maxReplicas is below the number of replicas that the rate needs."""
    max_replicas = spec.scaling.max_replicas if spec.scaling is not None else None
    if max_replicas is None or result.replicas is None or result.replicas <= max_replicas:
        return result
    note = f"spec.scaling.maxReplicas is {max_replicas}, and {result.rate_rps:g} requests/s need {result.replicas} replicas"
    return replace(result, notes=(*result.notes, note))


def from_traffic(model: Json, request: TuneRequest) -> TuneResult:
    """Tune with predictions from the planner's data about the model's traffic, without a trial pod.

    Raises:
        InputError, TuneError: the planner has no data, or the objective can't be met.
    """
    if request.minimise != "cost":
        raise InputError(f"--from-traffic predicts rates alone; leave out --minimise {request.minimise}")
    spec = _spec(request.name, model)
    criterion = request.criterion(spec, 1.0)
    lines = traffic.lines(model.get("status") or {})
    instances = spec.runtime.instances_per_gpu or min(lines, default=1)
    largest = lines[instances].largest if instances in lines else 0
    config: dict[str, Any] = {"instance_group": [{"count": instances}]}
    configured = (spec.batching and spec.batching.max_batch_size) or 0
    if max(largest, configured) > 1:
        # The spec, or batches that were executed, show that batching is on for the model.
        config |= {"max_batch_size": max(largest, configured), "dynamic_batching": {}}
    configurations = space(spec, config, objective_s=criterion.predictor.objective_s)
    forecast = traffic.forecast(configurations, criterion, lines, name=request.name)
    result = tune_result.predicted(request.name, configurations, criterion, forecast, rate_rps=request.rate_rps)
    checked(request.name, model["spec"], result.change)
    return _with_limit(result, spec)


def run(search: Search, measuring: Measuring, show: Callable[[str], None]) -> tuple[Search, End]:
    """Measure the points that a search requests, until its end. Ctrl-C ends it with the best result so far.

    The search ends in the same way if no further points can be measured, for example because the pod was deleted.

    Raises:
        ClusterError, PlaceError, TuneError: no further points can be measured, and there is no best configuration yet.
        TuneError: the objective can't be met.
    """
    step = 0
    try:
        while True:
            search, request = search.next()
            if isinstance(request, End):
                return search, request
            if request.step != step:
                step = request.step
                show(f"step {step} of 6: {TITLES[step]}")
            try:
                point = measuring.measure(request.configuration, request.load)
            except (Failure, MeasureError) as error:
                if search.best() is None:
                    raise
                search = search.interrupted(f"no more points can be measured: {error}")
                continue
            search = search.after(point)
            show(point_text(point))
    except KeyboardInterrupt:
        search, request = search.interrupted().next()
        assert isinstance(request, End)  # noqa: S101  # an interrupted search has ended
        return search, request


def _spec(name: str, model: Json) -> Spec:
    try:
        return parse(name, model["spec"])
    except SpecError as error:
        raise InputError(f"{name}: its spec is invalid: {'; '.join(error.sentences)}") from None


def _cores(spec: Spec) -> float | None:
    """Return the CPU limit of a server pod in cores; None if it has no limit."""
    limits = spec.runtime.resources.limits
    return None if limits is None or limits.cpu is None else float(quantity(limits.cpu))
