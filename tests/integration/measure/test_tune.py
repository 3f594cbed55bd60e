"""The search of `halcyon tune` on a real Triton, whose configuration changes in place."""

from __future__ import annotations

import pytest

from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import GRPC_PORT, METRICS_PORT, Work
from halcyon.api.spec.parse import parse
from halcyon_cli.bench.trial.trial_runner import TrialRunner
from halcyon_cli.bench.tune_run import run
from halcyon_measure.measurement import Measurement
from halcyon_measure.protocols import target
from halcyon_measure.protocols.repository import Repository
from halcyon_measure.sampling.sampler import SamplingSettings, Source
from halcyon_measure.schedule.scenario import Scenario
from halcyon_tune.criterion import Criterion
from halcyon_tune.prediction import Predictor
from halcyon_tune.results.tune_result import result
from halcyon_tune.search import Budget, Search
from halcyon_tune.space import space

pytestmark = pytest.mark.more

EXPLICIT = ("--model-control-mode=explicit", "--load-model=m", "--exit-on-error=false")
OBJECTIVE_S = 0.4


def test_search_on_triton_finds_larger_batches_and_more_instances() -> None:
    # A batch of b rows takes 60 + 4 b ms, and instances sleep beside each other.
    with tritons.running([Work("m", t0_ms=60, a_ms=4, max_batch=2)], arguments=EXPLICIT, shares_memory=True) as (
        server,
    ):
        to = target.parse(
            f"grpc://{server.address}:{GRPC_PORT}", api="kserve", transport=None, encoding=None, model="m"
        )
        page = Source(pod="m", url=f"http://{server.address}:{METRICS_PORT}/metrics")
        prepared = Measurement(
            target=to, scenario=Scenario(), sampling=SamplingSettings(servers=(page,), idle_s=0)
        ).prepare()
        config = Repository(to).config()
        spec = parse("m", {"model": {"source": {"uri": "s3://models/m"}}})
        known = space(spec, config, objective_s=OBJECTIVE_S, cores=2)
        search = Search.begin(known, Criterion(predictor=Predictor(OBJECTIVE_S)), Budget(seconds=240))
        shown: list[str] = []
        search, end = run(search, TrialRunner(prepared, config), shown.append)
    assert end.reason in {"decided", "undecided", "budget"}, (end, shown)
    assert known.today.max_batch == 2
    best = search.best()
    assert best is not None, shown
    assert best.max_batch >= 8, shown
    assert best.instances == 2, shown
    outcome = result("m", search, end)
    assert outcome.capacity_rps is not None
    assert outcome.capacity_rps > 100, shown
    line = search.profile.times.line(best)
    assert line is not None
    assert line.seconds(8) == pytest.approx(0.06 + 0.004 * 8, rel=0.25), shown
