"""Measurements of a law, as jobs that several processes share: each job is claimed, and its results are recorded at once.

| job | what |
| --- | --- |
| tunes | `halcyon tune` from poor settings; its recommended configuration serves 5,000 other requests |
| sweep | the capacity of one of 36 configurations, by up to eight loads |
| best | `halcyon tune` from the best settings of the sweep |
| turns | capacities of the winners of the tunings, of the sweep and of the poor settings, one after the other |
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from benchmarks.quality.rows import commit
from benchmarks.tune.real import sweep
from benchmarks.tune.real.laws import CORES, TritonLaw
from benchmarks.tune.real.store import State, Store
from benchmarks.tune.real.sweep import SweptConfiguration
from e2e.cluster.progress import say
from halcyon.api.spec.parse import parse
from halcyon_cli.bench.tune_run import run
from halcyon_tune.criterion import Criterion
from halcyon_tune.patch import duration
from halcyon_tune.points import Configuration, Load, Measuring, Point, Rate
from halcyon_tune.prediction import Predictor
from halcyon_tune.results.tune_result import result
from halcyon_tune.search import Budget, Search
from halcyon_tune.space import Space, space

SEEDS, BEST_SEEDS, TURNS = 5, 2, 2
"""Number of tunings of a law from poor settings, from the best ones, and of turns."""
REQUESTS = 5000
_RESERVE = 0.9
"""Share of the recommended rate at which the objective must be kept, which leaves a reserve."""
_MAX_LATE = 0.05
"""Share of the objective by which 1 % of a load's requests may be sent late."""
_MAX_EXCESS = 0.1
"""Share by which executions of a load may take longer than the law says. The Python backend needs a part of it."""
_ATTEMPTS = 6
_PAUSE_S = 5.0
SWEEP_SEED, _KEPT_SEED, _TURN_SEED = 99, 1000, 2000
"""Seeds of the sweeps, of the requests at the end of a tuning, and of the turns. From the first one on, all loads of a
measuring side have the same arrivals, but for their rate.
"""

Kind = Literal["tunes", "sweep", "best", "turns"]


class TimeUpError(Exception):
    """The end of the time of --minutes."""


class DisturbedError(Exception):
    """The client or the server was disturbed in every attempt of a load."""


@dataclass(frozen=True)
class Job:
    """A part of a law's measurements."""

    kind: Kind
    key: str
    """Text of a configuration, or the number of a tuning or of a turn."""


class CalmTrial:
    """A measuring side that repeats a load if the machine had no time for its client or for the model."""

    def __init__(
        self, law: TritonLaw, inner: Measuring, check: Callable[[], None] = lambda: None, pause_s: float = _PAUSE_S
    ) -> None:
        """Store the settings. `check` raises an exception if no other load may begin."""
        self._law, self._inner, self._check, self._pause_s = law, inner, check, pause_s
        self.points: list[Point] = []
        self.repeated, self.lost_s = 0, 0.0
        """Number of repeated loads, and their time in seconds."""

    def measure(self, configuration: Configuration, load: Load) -> Point:
        """Return the point of a load without disturbance.

        Raises:
            DisturbedError: there was none.
        """
        for _ in range(_ATTEMPTS):
            self._check()
            began = time.monotonic()
            point = self._inner.measure(configuration, load)
            if not (why := disturbance(self._law, point)):
                self.points.append(point)
                figures = point.why or f"{point.throughput_rps:.1f}/s, P99 {1000 * point.p99_s:.0f} ms"
                say(f"{self._law.kind}: {configuration.text()}, {load.text()}: {figures}, in {point.seconds:.0f} s")
                return point
            say(f"{self._law.kind}: {configuration.text()}, {load.text()}: {why}; repeated")
            time.sleep(self._pause_s)
            self.repeated += 1
            self.lost_s += time.monotonic() - began
        raise DisturbedError(f"{configuration.text()}, {load.text()}: disturbed {_ATTEMPTS} times")


def disturbance(law: TritonLaw, point: Point) -> str:
    """Return why a load doesn't count; empty if it does."""
    if point.failure is not None:
        return ""
    if point.late_p99_s > _MAX_LATE * law.objective_s:
        return f"1 % of the requests were sent {1000 * point.late_p99_s:.0f} ms late or more"
    excess = law.excess(point)
    if excess is not None and excess > _MAX_EXCESS:
        return f"executions took {excess:.0%} longer than they sleep"
    return ""


class LawRun:
    """The jobs of one law."""

    def __init__(self, law: TritonLaw, store: Store, runner: Callable[[int], Measuring], end: float) -> None:
        """Store the settings. `runner` returns a measuring side by its seed, and `end` is the time at which no load may begin."""
        self._law, self._store, self._runner, self._end = law, store, runner, end

    def run(self, job: Job) -> None:
        """Measure the missing part of a job.

        Raises:
            TimeUpError, DisturbedError: it didn't end.
        """
        self._check_time()
        if job.kind == "sweep":
            self._measure_sweep(job.key)
        elif job.kind == "turns":
            self._measure_turn(int(job.key))
        else:
            best = winner(self._law, self._store.read()) if job.kind == "best" else None
            self._tune(job, today(self._law, best=best))

    def _trial(self, seed: int) -> CalmTrial:
        return CalmTrial(self._law, self._runner(seed), self._check_time)

    def _measure_sweep(self, key: str) -> None:
        configuration = next(c for c in today(self._law).configurations if c.text() == key)
        document = self._store.read().get("sweep", {}).get(key)
        guess = self._law.guess.capacity(configuration, self._law.objective_s)
        initial = (
            SweptConfiguration.from_document(document)
            if document
            else SweptConfiguration(configuration=configuration, guess_rps=guess)
        )
        swept_configuration = self._measure_loads(
            initial, SWEEP_SEED, sweep.load, lambda swept: self._store.write("sweep", key, swept.document())
        )
        say(f"{self._law.kind}: sweep: {key}: {swept_configuration.capacity_rps(self._law.objective_s):.4g}/s")

    def _measure_loads(
        self,
        initial: SweptConfiguration,
        seed: int,
        load: Callable[[float], Rate],
        shown: Callable[[SweptConfiguration], None] = lambda _: None,
    ) -> SweptConfiguration:
        """Return a configuration after its missing loads. `shown` is called after each of them."""
        swept_configuration, trial = initial, self._trial(seed)
        while (rate := swept_configuration.next_rate(self._law.objective_s)) is not None:
            point = trial.measure(swept_configuration.configuration, load(rate))
            swept_configuration = swept_configuration.after(point, self._law.excess(point))
            shown(swept_configuration)
        return swept_configuration

    def _tune(self, job: Job, search_space: Space) -> None:
        objective_s, began, seed = self._law.objective_s, time.monotonic(), int(job.key)
        trial = self._trial(seed if job.kind == "tunes" else seed + SEEDS)
        initial = Search.begin(search_space, Criterion(predictor=Predictor(objective_s)), Budget())
        search, end = run(initial, trial, lambda _: None)
        if end.reason == "interrupted":
            raise TimeUpError
        tuned = result("m", search, end)
        seconds = time.monotonic() - began - trial.lost_s
        entry: State = {
            "commit": commit(),
            "end": tuned.end,
            "why": tuned.why,
            "today": asdict(search_space.today),
            "best": None if tuned.best is None else asdict(tuned.best),
            "gain": tuned.gain,
            "interval": tuned.gain_interval,
            "capacity_rps": tuned.capacity_rps,
            "points": tuned.points,
            "seconds": round(seconds, 1),
            "repeated": trial.repeated,
            "measured": [_line(point) for point in trial.points],
        }
        if job.kind == "tunes" and tuned.best is not None and tuned.capacity_rps:
            # Other requests than those of the search: another seed.
            load = Rate(rate_rps=_RESERVE * tuned.capacity_rps, min_requests=REQUESTS)
            point = self._trial(_KEPT_SEED + seed).measure(tuned.best, load)
            entry["kept"] = {
                "requests": point.requests,
                "p99_ms": round(1000 * point.p99_s, 1),
                "rate_rps": load.rate_rps,
                "late_ms": round(1000 * point.late_p99_s, 1),
            }
        self._store.write(job.kind, job.key, entry)
        best = None if tuned.best is None else tuned.best.text()
        say(
            f"{self._law.kind}: {job.kind} {seed}: {tuned.end}, {best}, gain {tuned.gain}, {tuned.points} points, {seconds:.0f} s"
        )

    def _measure_turn(self, turn: int) -> None:
        order = compared(self._law, self._store.read())
        for configuration in order if turn % 2 == 0 else order[::-1]:
            key = f"{turn}: {configuration.text()}"
            state = self._store.read()
            if key in state.get("turns", {}):
                continue
            plain = state["sweep"].get(replace(configuration, preferred=()).text())
            guess = SweptConfiguration.from_document(plain).capacity_rps(self._law.objective_s) if plain else 0.0
            initial = SweptConfiguration(configuration=configuration, guess_rps=guess, is_near=guess > 0)
            swept_configuration = self._measure_loads(initial, _TURN_SEED + turn, sweep.turn_load)
            self._store.write("turns", key, swept_configuration.document())
            say(f"{self._law.kind}: turn {key}: {swept_configuration.capacity_rps(self._law.objective_s):.4g}/s")

    def _check_time(self) -> None:
        if time.monotonic() >= self._end:
            raise TimeUpError


def missing(law: TritonLaw, state: Mapping[str, Any]) -> list[Job]:
    """Return the jobs that can be measured now, in their order."""
    by_key = {entry.configuration.text(): entry for entry in swept(state)}
    keys = [configuration.text() for configuration in today(law).configurations]
    open_sweep = [key for key in keys if key not in by_key or by_key[key].next_rate(law.objective_s) is not None]
    jobs = [Job("tunes", str(seed)) for seed in range(SEEDS) if str(seed) not in state.get("tunes", {})]
    jobs += [Job("sweep", key) for key in open_sweep]
    if open_sweep:
        return jobs
    jobs += [Job("best", str(seed)) for seed in range(BEST_SEEDS) if str(seed) not in state.get("best", {})]
    turns = state.get("turns", {})
    return jobs + [
        Job("turns", str(turn))
        for turn in range(TURNS)
        if any(f"{turn}: {configuration.text()}" not in turns for configuration in compared(law, state))
    ]


def today(law: TritonLaw, *, best: Configuration | None = None) -> Space:
    """Return the search space of a model with poor settings, or with the best ones."""
    now = best or Configuration(max_batch=4)
    batching: State = {"maxBatchSize": now.max_batch, "maxQueueDelay": duration(now.delay_s)}
    if now.preferred:
        batching["preferredBatchSizes"] = list(now.preferred)
    parts = {
        "model": {"source": {"uri": "s3://models/m"}},
        "batching": batching,
        "runtime": {"instancesPerGPU": now.instances},
    }
    config = {"backend": "python", "max_batch_size": 4, "dynamic_batching": {}}
    return space(parse("m", parts), config, objective_s=law.objective_s, cores=CORES)


def swept(state: Mapping[str, Any]) -> list[SweptConfiguration]:
    """Return the configurations of a law's sweep so far."""
    return [SweptConfiguration.from_document(document) for document in state.get("sweep", {}).values()]


def winner(law: TritonLaw, state: Mapping[str, Any]) -> Configuration:
    """Return the best configuration of a law's sweep."""
    return sweep.best(swept(state), law.objective_s).configuration


def compared(law: TritonLaw, state: Mapping[str, Any]) -> Sequence[Configuration]:
    """Return the configurations that are measured in turns: the poor settings, the winners of the sweep and of the tunings."""
    winners = {sweep.configuration(tuning["best"]) for tuning in state.get("tunes", {}).values() if tuning["best"]}
    return tuple(dict.fromkeys((today(law).today, winner(law, state), *sorted(winners))))


def _line(point: Point) -> list[Any]:
    """Return a point of a tuning in short: its settings and load, its time, and the measured times and rate, or its failure."""
    settings = [point.configuration.text(), point.load.text(), round(point.seconds, 1)]
    measured = [round(1000 * point.p99_s, 1), round(point.throughput_rps, 2), round(1000 * point.late_p99_s, 1)]
    return [*settings, *(measured if point.failure is None else [point.failure])]
