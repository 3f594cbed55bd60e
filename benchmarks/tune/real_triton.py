"""Rows 6.1, 6.3, 6.4 and 6.5 on a real Triton: `python -m benchmarks.tune.real_triton [--minutes N] [--law N]`.

For each of four laws, a full sweep measures 36 configurations, once. Then `halcyon tune` runs five times from poor settings, its
recommended configuration serves 5,000 other requests, its winner and that of the sweep are measured in turns, and `halcyon tune` runs
again from the best settings. Everything is recorded after each point or run, so a run goes on where an earlier one has ended. All of it
takes about six hours.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import GRPC_PORT, METRICS_PORT
from benchmarks.quality.rows import OUT, Row, commit, holds, record
from benchmarks.tune import real_sweep
from benchmarks.tune.real_laws import CORES, LAWS, TritonLaw
from benchmarks.tune.real_sweep import SweptConfiguration
from e2e.cluster.progress import say
from halcyon.api.spec.parse import parse
from halcyon_cli.bench.trial.trial_runner import TrialRunner
from halcyon_cli.bench.tune_run import run
from halcyon_measure.measurement import Measurement
from halcyon_measure.protocols import target
from halcyon_measure.protocols.repository import Repository
from halcyon_measure.sampling.sampler import SamplingSettings, Source
from halcyon_measure.schedule.scenario import Scenario
from halcyon_tune.criterion import Criterion
from halcyon_tune.errors import TuneError
from halcyon_tune.patch import duration
from halcyon_tune.points import Configuration, Rate
from halcyon_tune.prediction import Predictor
from halcyon_tune.results.tune_result import result
from halcyon_tune.search import Budget, Search
from halcyon_tune.space import Space, space

State = dict[str, Any]

SEEDS, BEST_SEEDS = 5, 2
"""Number of tunings of a law from poor settings, and from the best ones."""
MAX_BEST = 5
_REQUESTS = 5000
_RESERVE = 0.9
"""Share of the recommended rate at which the objective must be kept, which leaves a reserve."""
_TURNS = 2
_RAW = OUT / "raw" / "tune-triton.json"
_ARGUMENTS = ("--model-control-mode=explicit", "--load-model=m", "--exit-on-error=false")


class TimeUpError(Exception):
    """The end of the time of --minutes."""


class LawRun:
    """All measurements of one law, each of which is recorded at once."""

    def __init__(
        self, law: TritonLaw, state: State, runner: Callable[[int], TrialRunner], save: Callable[[], None], end: float
    ) -> None:
        """Store the settings. `runner` returns a measuring side by its seed, and `end` is the time at which no other job may begin."""
        self._law, self._state, self._runner, self._save, self._end = law, state, runner, save, end

    def run(self) -> None:
        """Measure what is missing.

        Raises:
            TimeUpError: the time is up.
        """
        self._sweep()
        for seed in range(SEEDS):
            self._tuned("tunes", seed, _today(self._law, max_batch=4))
        best = real_sweep.best(swept(self._state), self._law.objective_s).configuration
        self._compared(best)
        for seed in range(BEST_SEEDS):
            self._tuned("best", seed, _today(self._law, best=best))

    def _sweep(self) -> None:
        known = self._state.setdefault("sweep", {})
        runner = self._runner(99)
        for one in _today(self._law, max_batch=4).configurations:
            key = one.text()
            guess = self._law.guess.capacity(one, self._law.objective_s)
            found = (
                SweptConfiguration.of(known[key])
                if key in known
                else SweptConfiguration(configuration=one, guess_rps=guess)
            )
            while (rate := found.next_rate(self._law.objective_s)) is not None:
                self._check_time()
                found = found.after(runner.measure(one, real_sweep.load(rate)))
                known[key] = found.document()
                self._save()
            done = len([each for each in swept(self._state) if each.next_rate(self._law.objective_s) is None])
            say(f"{self._law.label}: sweep {done}: {key}: {found.capacity_rps(self._law.objective_s):.4g}/s")

    def _tuned(self, kind: str, seed: int, known: Space) -> None:
        runs = self._state.setdefault(kind, {})
        if str(seed) in runs:
            return
        self._check_time()
        objective_s, began = self._law.objective_s, time.monotonic()
        runner = self._runner(seed)
        begun = Search.begin(known, Criterion(predictor=Predictor(objective_s)), Budget())
        search, end = run(begun, runner, lambda _: None)
        if end.reason == "interrupted":
            raise TimeUpError
        found = result("m", search, end)
        entry: State = {
            "commit": commit(),
            "end": found.end,
            "why": found.why,
            "today": asdict(known.today),
            "best": None if found.best is None else asdict(found.best),
            "gain": found.gain,
            "interval": found.gain_interval,
            "capacity_rps": found.capacity_rps,
            "points": found.points,
            "seconds": round(time.monotonic() - began, 1),
        }
        if kind == "tunes" and found.best is not None and found.capacity_rps:
            # Other requests than those of the search: another seed.
            load = Rate(rate_rps=_RESERVE * found.capacity_rps, min_requests=_REQUESTS)
            point = self._runner(1000 + seed).measure(found.best, load)
            entry["kept"] = {"requests": point.requests, "p99_ms": 1000 * point.p99_s, "rate_rps": load.rate_rps}
        runs[str(seed)] = entry
        self._save()
        say(
            f"{self._law.label}: {kind} {seed}: {found.end}, {entry['best']}, {found.points} points, {entry['seconds']} s"
        )

    def _compared(self, best: Configuration) -> None:
        """Measure the winner of each tuning and that of the sweep in turns: their capacities, ABBA."""
        turns = self._state.setdefault("turns", {})
        for winner in {real_sweep.configuration(one["best"]) for one in self._state["tunes"].values() if one["best"]}:
            key = winner.text()
            if winner == best or len(turns.get(key, ())) >= _TURNS:
                continue
            for turn in range(len(turns.get(key, ())), _TURNS):
                order = (winner, best) if turn % 2 == 0 else (best, winner)
                rates = {one: self._capacity(one, 2000 + turn) for one in order}
                turns.setdefault(key, []).append([rates[winner], rates[best]])
                self._save()
            say(f"{self._law.label}: in turns: {key}: {turns[key]}")

    def _capacity(self, one: Configuration, seed: int) -> float:
        runner = self._runner(seed)
        plain = self._state["sweep"].get(replace(one, preferred=()).text())
        guess = SweptConfiguration.of(plain).capacity_rps(self._law.objective_s) if plain else 0.0
        found = SweptConfiguration(configuration=one, guess_rps=guess)
        while (rate := found.next_rate(self._law.objective_s)) is not None:
            self._check_time()
            found = found.after(runner.measure(one, real_sweep.load(rate)))
        return found.capacity_rps(self._law.objective_s)

    def _check_time(self) -> None:
        if time.monotonic() >= self._end:
            raise TimeUpError


def _today(law: TritonLaw, *, max_batch: int = 4, best: Configuration | None = None) -> Space:
    """Return the search space of a model with these settings, or with the best ones."""
    now = best or Configuration(max_batch=max_batch)
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
    return [SweptConfiguration.of(one) for one in state.get("sweep", {}).values()]


@contextmanager
def serving(law: TritonLaw) -> Iterator[Callable[[int], TrialRunner]]:
    """Start a Triton with the law's model, and yield a function that returns a measuring side by its seed."""
    with tritons.running([law], arguments=_ARGUMENTS, shares_memory=True) as (one,):
        to = target.parse(f"grpc://{one.address}:{GRPC_PORT}", api="kserve", transport=None, encoding=None, model="m")
        page = Source(pod="m", url=f"http://{one.address}:{METRICS_PORT}/metrics")
        config = Repository(to).config()

        def runner(seed: int) -> TrialRunner:
            made = Measurement(
                target=to, scenario=Scenario(seed=seed), sampling=SamplingSettings(servers=(page,), idle_s=0)
            )
            return TrialRunner(made.prepare(), config)

        yield runner


def states(path: Path = _RAW) -> dict[str, State]:
    """Return what is recorded, by the label of the law. A law whose times have changed is left out."""
    try:
        known: dict[str, State] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    laws = {law.label: json.loads(json.dumps(law.document())) for law in LAWS}
    return {label: state for label, state in known.items() if state.get("law") == laws.get(label)}


def measure(minutes: float, laws: Sequence[TritonLaw] = LAWS) -> None:
    """Measure what is missing, and end after about this many minutes. The last point or tuning may take longer."""
    end, known = time.monotonic() + 60 * minutes, states()

    def save() -> None:
        _RAW.parent.mkdir(parents=True, exist_ok=True)
        partial = _RAW.with_suffix(".part")
        partial.write_text(json.dumps(known, indent=1))
        partial.replace(_RAW)

    for law in laws:
        state = known.setdefault(law.label, {"law": law.document()})
        if is_complete(state):
            continue
        try:
            with serving(law) as runner:
                LawRun(law, state, runner, save, end).run()
        except TimeUpError:
            say(f"{law.label}: the time is up; the next run goes on from here")
            return
        except TuneError as error:
            say(f"{law.label}: {error}; the next run goes on from here")


def is_complete(state: Mapping[str, Any]) -> bool:
    """Return whether a law has all its runs, of which those from the best settings are the last."""
    return len(state.get("best", {})) >= BEST_SEEDS


def rows(known: Mapping[str, State]) -> list[Row]:
    """Return the rows of what is recorded so far."""
    laws = {law.label: law for law in LAWS}
    tunes = [
        (laws[label], state, one)
        for label, state in known.items()
        for one in state.get("tunes", {}).values()
        if "best" in state or len(state.get("tunes", {})) >= SEEDS
    ]
    done = sum(map(is_complete, known.values()))
    why = (
        ""
        if done == len(LAWS)
        else f"{done} of {len(LAWS)} laws are complete; python -m benchmarks.tune.real_triton goes on"
    )
    shared: State = {
        "command": "python -m benchmarks.tune.real_triton",
        "stand_ins": "models of Triton's Python backend that sleep on two CPU cores",
        "why": why,
        "law": ", ".join(laws),
        "load": "Poisson, 8 s a load of the sweep",
    }
    shares = [share for law, state, one in tunes if (share := _share(law, state, one)) is not None]
    loads = [len(one["loads"]) for state in known.values() for one in state.get("sweep", {}).values()]
    configurations = len(_today(LAWS[0]).configurations)
    first = Row(
        id="6.1",
        what="goodput of the winner against that of a full sweep's winner, on a real Triton",
        value={
            "laws": done,
            "worst_share": min(shares, default=None),
            "mean_share": round(mean(shares), 4) if shares else None,
            "most_of_a_sweeps_points": round(
                max(one["points"] for _, _, one in tunes) / (real_sweep.MAX_LOADS * configurations), 4
            )
            if tunes
            else None,
            "longest_s": max((one["seconds"] for _, _, one in tunes), default=None),
        },
        target=">= 97 % with <= 10 % of its measured points and <= 10 minutes, 4 laws",
        limits=[
            ("laws", 4, ">="),
            ("worst_share", 0.97, ">="),
            ("most_of_a_sweeps_points", 0.1, "<="),
            ("longest_s", 600, "<="),
        ],
        n=len(shares),
        raw={"loads of the sweeps": sum(loads)},
        **shared,
    )
    kept = [_is_kept(law, one) for law, _, one in tunes]
    inside = [found for law, state, one in tunes if (found := _has_true_gain(law, state, one)) is not None]
    ends = [(seed, one["end"]) for state in known.values() for seed, one in state.get("best", {}).items()]
    # One tuning of each law, and one more.
    same = [end for _, end in sorted(ends, key=lambda one: one[0])][:MAX_BEST]
    return [
        first,
        _count("6.3", "the recommended configuration keeps its objective in >= 5,000 other requests at 90 % of its rate", kept, (20, 20), shared),
        _count("6.4", "the gain's interval has the true gain, of the sweep", inside, (18, 20), shared),
        _count("6.5", "settings that are the best already: nothing to change", [one == "nothing to change" for one in same], (5, 5), shared),
    ]  # fmt: skip


def _count(name: str, what: str, found: Sequence[bool], target: tuple[int, int], shared: Mapping[str, Any]) -> Row:
    least, of = target
    value = {"held": sum(found), "runs": len(found)}
    text = f"{least} of {of}" if least == of else f">= {least} of {of}"
    return Row(
        id=name,
        what=what,
        value=value,
        target=text,
        limits=[("held", least, ">="), ("runs", of, ">=")],
        n=len(found),
        **shared,
    )


def _share(law: TritonLaw, state: Mapping[str, Any], one: Mapping[str, Any]) -> float | None:
    """Return the capacity of a tuning's winner over that of the sweep's, by turns; None if they weren't measured yet."""
    if one["best"] is None:
        return 0.0
    winner = real_sweep.configuration(one["best"])
    if winner == real_sweep.best(swept(state), law.objective_s).configuration:
        return 1.0
    turns = state.get("turns", {}).get(winner.text(), ())
    if len(turns) < _TURNS:
        return None
    own_rps, best_rps = (math.fsum(turn[side] for turn in turns) for side in (0, 1))
    return round(own_rps / max(best_rps, 1e-9), 4)


def _is_kept(law: TritonLaw, one: Mapping[str, Any]) -> bool:
    kept: Mapping[str, float] = one.get("kept") or {"requests": 0, "p99_ms": math.inf}
    return kept["requests"] >= _REQUESTS and kept["p99_ms"] <= 1000 * law.objective_s


def _has_true_gain(law: TritonLaw, state: Mapping[str, Any], one: Mapping[str, Any]) -> bool | None:
    """Return whether the interval has the gain by the sweep; None if no gain was shown."""
    if one["interval"] is None or one["best"] is None:
        return None
    by = {each.configuration: each.capacity_rps(law.objective_s) for each in swept(state)}
    best = replace(real_sweep.configuration(one["best"]), preferred=())
    today = real_sweep.configuration(one["today"])
    if not by.get(today) or best not in by:
        return None
    low, high = one["interval"]
    return bool(low <= by[best] / by[today] - 1 <= high)


def main(arguments: Sequence[str]) -> int:
    """Measure, and record the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=600.0, help="end after about this time; the next run goes on")
    parser.add_argument("--law", type=int, choices=range(1, len(LAWS) + 1), help="measure this law alone")
    given = parser.parse_args(arguments)
    measure(given.minutes, LAWS if given.law is None else LAWS[given.law - 1 : given.law])
    found = rows(states())
    record("tune", found)
    for row in found:
        say(f"tune: row {row.id} {'holds' if holds(row) else 'falls short'}: {row.value}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
