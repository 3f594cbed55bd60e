"""Scenarios S1 to S12 of docs/simulator.md, as simulation cases.

Rates in this module are for law L1, with which a replica serves at most 10 requests/s. For another law, they are
multiplied by its `peak_rps` / 10, so that the numbers of replicas stay comparable. Out of scope: the policies
(`policies`), and the score of a run (`bounds.score`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from halcyon_simulator.bounds.replica_capacity import capacity_rps
from halcyon_simulator.engine import traces
from halcyon_simulator.engine.case import Case, Drift, ServiceLaw, SignalFaults, StartFaults, Times
from halcyon_simulator.engine.load import Profile, arrivals, superposed
from halcyon_simulator.engine.run import Write


@dataclass(frozen=True)
class Law:
    """Service law of replicas (the time that they need for a batch), with a latency objective."""

    name: str
    service: ServiceLaw
    slo_s: float


LAWS: Mapping[str, Law] = {
    "L1": Law("L1", ServiceLaw(t0_s=0.4, a_s=0.0, max_batch=4), slo_s=2.4),
    "L2": Law("L2", ServiceLaw(t0_s=0.08, a_s=0.008, max_batch=16), slo_s=0.5),
}
"""Service laws by name. With L1, a replica serves at most 10 requests/s; with L2, 76.9 requests/s."""

_BASE_RPS = 10.0
"""Maximum requests per second of a replica with service law L1, for which the rates in this module are given."""
_LEAD_S = 300.0
"""Duration of a quiet phase at the start of a simulation case, in seconds. It fills the longer windows of policies
before the load changes. This phase is scored as well."""
_DAY_S = 86400.0
_BLIND = (900.0, 1200.0)
"""Start and end of the period in scenario S9 in which signals are frozen or absent, in seconds."""
_GRACE_S = 15.0
"""Time after the loss of signals in scenario S9 during which a policy may still act on earlier values, in seconds."""
_COPIES = 16
"""Number of copies of a trace that are added up in scenario S6 with service law L1. Their sum has 40 to 70
requests/s."""
_COPY_SPREAD_S = 60.0
"""Maximum time by which a copy of a trace is shifted, in seconds. The shifts smooth bursts but keep the shape of the
load."""
MODELS = 20
"""Number of models that share a GPU budget in scenario S11."""
BUDGET_SHARE = 0.7
"""GPU budget in scenario S11, as a share of the sum of the models' needs, each at its own peak."""


class ScenarioError(ValueError):
    """The scenario name is unknown. The message lists the valid names."""


@dataclass(frozen=True)
class Draw:
    """Parameters with which a scenario's case is generated: service law, start time, seed and burstiness."""

    law: Law
    start_s: float
    seed: int
    cv: float
    """Coefficient of variation of arrival gaps in generated loads; 1 means Poisson arrivals. Recorded loads don't use
    it."""
    rng: np.random.Generator

    @property
    def factor(self) -> float:
        """Factor that converts rates for service law L1 to rates for this draw's service law."""
        return self.law.service.peak_rps / _BASE_RPS

    def from_profile(self, name: str, profile: Profile) -> Case:
        """Return a simulation case whose load is generated from a profile, which has rates for service law L1."""
        return self.from_times(
            name, arrivals(profile.scaled(self.factor), rng=self.rng, cv=self.cv), profile.duration_s
        )

    def from_times(self, name: str, times: Times, duration_s: float) -> Case:
        """Return a simulation case with the given arrival times."""
        return Case(
            name=name,
            arrivals=times,
            duration_s=duration_s,
            service=self.law.service,
            slo_s=self.law.slo_s,
            start_s=self.start_s,
            seed=self.seed,
        )


def scenario(name: str, *, law: Law, start_s: float, seed: int, cv: float = 1.0) -> Case:
    """Return a scenario by its full name, such as `S1`, `S3r`, `S6-azure` or `S7-10m`.

    `members` lists the full names in a family. The same arguments always give the same case.

    Raises:
        ScenarioError: the name is unknown.
    """
    full_names = members(name)
    if full_names != (name,):
        raise ScenarioError(f"scenario {name} is a family; name one of its members: {', '.join(full_names)}")
    # The name is part of the seed, so two scenarios with the same seed use different random numbers.
    rng = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())]))
    return _BUILDERS[name](Draw(law, start_s, seed, cv, rng), name)


def members(name: str) -> tuple[str, ...]:
    """Return the scenarios of a family, for example three traces for `S6`. A single scenario is its own family.

    Raises:
        ScenarioError: there is no scenario or family with this name.
    """
    if name in _BUILDERS:
        return (name,)
    if name in FAMILIES:
        return FAMILIES[name]
    if name == "S10":
        raise ScenarioError(
            "scenario S10 is about the number of deployments, not about a load: it is measured on the operator itself, by "
            "`make bench-reaction`"
        )
    valid = ", ".join([*(single for single in _BUILDERS if "-" not in single), *FAMILIES])
    raise ScenarioError(
        f"there is no scenario {name!r}; there are {valid}, and a family's members, for example S6-azure"
    )


def budget(cases: Sequence[Case]) -> int:
    """Return the number of GPUs that the models of scenario S11 share.

    It is `BUDGET_SHARE` of the sum of the models' needs, each in its busiest minute.
    """
    peaks = [
        np.bincount((case.arrivals // 60).astype(np.int64)).max() / 60 / capacity_rps(case.service, case.slo_s)
        for case in cases
    ]
    return max(len(cases), int(BUDGET_SHARE * sum(np.ceil(peaks))))


def wrong_scalings(case: Case, writes: Sequence[Write]) -> int:
    """Return the writes of a run that can't be justified by the signals known at the time, for scenario S9.

    A write is wrong in two cases:

        - It lowers the replicas while the signals are frozen or absent, after a grace period of 15 s.
        - It lowers them, at any time, so far that they couldn't serve the load of the last minute even with full
          batches.
    """
    faults = case.signal_faults
    wrong = 0
    for write in writes:
        at = write.at_s
        if write.after >= write.before:
            continue
        blind = any(begin + _GRACE_S <= at < end for begin, end in (*faults.frozen, *faults.absent))
        since = max(0.0, at - 60.0)
        rate_rps = float(np.searchsorted(case.arrivals, at) - np.searchsorted(case.arrivals, since)) / max(
            at - since, 1.0
        )
        wrong += blind or write.after < rate_rps / case.service.peak_rps
    return wrong


def _step(draw: Draw, name: str) -> Case:
    return draw.from_profile(name, Profile.steps((_LEAD_S, 20), (900, 200), (1800, 20)))


def _ramp(draw: Draw, name: str) -> Case:
    tail_s = 600.0  # Pods that are kept too long are billed within the case.
    return draw.from_profile(
        name, Profile(((_LEAD_S, 20, 20), (900, 20, 400), (300, 400, 400), (900, 400, 20), (tail_s, 20, 20)))
    )


def _spikes(draw: Draw, name: str) -> Case:
    """Return a load with ten spikes, one in the middle of every 20 minutes.

    The load is scored from the third spike on.
    """
    cycle = ((570.0, 20.0), (60.0, 400.0), (570.0, 20.0))
    return replace(draw.from_profile(name, Profile.steps(*cycle * 10)), score_from_s=2 * 1200.0)


def _random_spikes(draw: Draw, name: str) -> Case:
    """Return a load with as many spikes as `_spikes`, at random times with the same mean interval.

    The whole load is scored.
    """
    pieces: list[tuple[float, float]] = []
    for gap_s in np.round(240.0 + draw.rng.exponential(900.0, 10)).tolist():
        pieces += [(gap_s, 20), (60, 400)]
    return draw.from_profile(name, Profile.steps(*pieces, (570, 20)))


def _flash_crowd(draw: Draw, name: str) -> Case:
    """Return 20 % of the requests to the World Cup site in 1998: 262/s on average, and 467/s in the busiest minute."""
    return draw.from_profile(
        name, Profile.steps(*((60.0, requests / 60 * 0.2) for requests in traces.worldcup_minutes()))
    )


def _diurnal(draw: Draw, name: str) -> Case:
    """Return a load of fourteen days from some clients of a production service, with 10 requests/s on average.

    The first seven days are for learning and are not scored.
    """
    times = traces.replayed(traces.chosen(traces.clients(), mean_rps=10 * draw.factor, rng=draw.rng), rng=draw.rng)
    return replace(draw.from_times(name, times, traces.CLIENT_DAYS * _DAY_S), score_from_s=7 * _DAY_S)


def _replay(draw: Draw, name: str, *, trace: str) -> Case:
    times = traces.bundled(trace)
    copies = max(1, round(_COPIES * draw.factor))
    return draw.from_times(
        name, superposed(times, copies=copies, spread_s=_COPY_SPREAD_S, rng=draw.rng), float(np.ceil(times[-1]))
    )


def _on_and_off(draw: Draw, name: str, *, off_s: float, cycles: int) -> Case:
    """Return a load that alternates between two minutes with requests and `off_s` seconds without requests.

    The minimum number of replicas is 0. Policies that scale to zero do so after their own default time.
    """
    return replace(draw.from_profile(name, Profile.steps(*((120.0, 20.0), (off_s, 0.0)) * cycles)), low=0)


_STAIRS = Profile.steps((600, 20), (600, 100), (600, 40), (600, 160), (600, 60), (600, 200), (1200, 20))


def _bad_pods(draw: Draw, name: str) -> Case:
    """Return a case with faulty pod starts.

    10 % of the starts take three times as long, and 5 % crash at their end.
    """
    return replace(
        draw.from_profile(name, _STAIRS), start_faults=StartFaults(slow_share=0.1, slow_factor=3.0, crash_share=0.05)
    )


def _no_capacity(draw: Draw, name: str) -> Case:
    """Return a case in which no GPU is free for 10 minutes, beginning just before a rise of the load."""
    return replace(draw.from_profile(name, _STAIRS), start_faults=StartFaults(no_capacity=((1740.0, 2340.0),)))


_OUTAGES: Mapping[str, SignalFaults] = {
    "noise": SignalFaults(noise=0.2),
    "missing": SignalFaults(missing_share=0.05),
    "both": SignalFaults(noise=0.2, missing_share=0.05),
    "frozen": SignalFaults(frozen=(_BLIND,)),
    "absent": SignalFaults(absent=(_BLIND,)),
    "mixed": SignalFaults(noise=0.2, missing_share=0.05, frozen=((900.0, 1050.0),), absent=((1050.0, 1200.0),)),
    "flicker": SignalFaults(absent=tuple((begin, begin + 20.0) for begin in np.arange(900.0, 1200.0, 40.0).tolist())),
}
_OUTAGE_LOADS: Mapping[str, Profile] = {
    "few": Profile.steps((2100, 15)),
    "steady": Profile.steps((2100, 60)),
    "many": Profile.steps((2100, 300)),
    "rising": Profile.steps((1000, 60), (1100, 120)),
    "falling": Profile.steps((1000, 120), (1100, 60)),
}


def _outage(draw: Draw, name: str, *, faults: SignalFaults, load: Profile) -> Case:
    return replace(draw.from_profile(name, load), signal_faults=faults)


def _surging_model(draw: Draw, name: str) -> Case:
    """Return one model of scenario S11: a steady load for an hour, with two surges of 10 minutes to four times it."""
    base = draw.rng.uniform(5.0, 30.0)
    first, second = float(draw.rng.integers(300, 1500)), float(draw.rng.integers(300, 900))
    tail = 3600 - first - second - 1200
    return draw.from_profile(
        name, Profile.steps((first, base), (600, 4 * base), (second, base), (600, 4 * base), (tail, base))
    )


def _drift(draw: Draw, name: str) -> Case:
    """Return a case with a constant load in which the duration of every batch doubles over an hour."""
    return replace(
        draw.from_profile(name, Profile.steps((7200, 100))), drift=Drift(begin_s=1800.0, end_s=5400.0, factor=2.0)
    )


_Builder = Callable[[Draw, str], Case]

_BUILDERS: Mapping[str, _Builder] = {
    "S1": _step,
    "S2": _ramp,
    "S3": _spikes,
    "S3r": _random_spikes,
    "S4": _flash_crowd,
    "S5": _diurnal,
    "S6-azure": partial(_replay, trace="azure_code"),
    "S6-mooncake": partial(_replay, trace="mooncake_synthetic"),
    "S6-aibrix": partial(_replay, trace="aibrix_up_and_down"),
    "S7-3m": partial(_on_and_off, off_s=180.0, cycles=10),
    "S7-10m": partial(_on_and_off, off_s=600.0, cycles=6),
    "S7-60m": partial(_on_and_off, off_s=3600.0, cycles=4),
    "S8-pods": _bad_pods,
    "S8-capacity": _no_capacity,
    **{
        f"S9-{kind}-{load}": partial(_outage, faults=faults, load=profile)
        for kind, faults in _OUTAGES.items()
        for load, profile in _OUTAGE_LOADS.items()
    },
    **{f"S11-{number:02}": _surging_model for number in range(1, MODELS + 1)},
    "S12": _drift,
}
FAMILIES: Mapping[str, tuple[str, ...]] = {
    family: tuple(name for name in _BUILDERS if name.startswith(f"{family}-"))
    for family in ("S6", "S7", "S8", "S9", "S11")
}
"""Full names of the scenarios in each family that has several."""
