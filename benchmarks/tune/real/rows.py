"""Rows 6.1 and 6.3 to 6.5 from what is recorded so far. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from benchmarks.quality.rows import Row
from benchmarks.tune.real import sweep
from benchmarks.tune.real.jobs import REQUESTS, SEEDS, TURNS, missing, swept, today, winner
from benchmarks.tune.real.laws import LAWS, TritonLaw
from benchmarks.tune.real.store import State
from benchmarks.tune.real.sweep import SweptConfiguration
from halcyon_tune.points import Configuration

_COMMAND = "python -m benchmarks.tune.real"
_BEST_RUNS = 5


def rows(known: Mapping[str, State]) -> list[Row]:
    """Return the rows of what is recorded so far, by the kind of the law."""
    laws = {law.kind: law for law in LAWS}
    tunes = [(laws[kind], state, one) for kind, state in known.items() for one in state.get("tunes", {}).values()]
    done = sum(not missing(laws[kind], state) for kind, state in known.items())
    why = "" if done == len(LAWS) else f"{done} of {len(LAWS)} laws are complete; {_COMMAND} goes on"
    shared: State = {
        "command": _COMMAND,
        "stand_ins": "models of Triton's Python backend that sleep on two CPU cores",
        "why": why,
        "law": ", ".join(law.label for law in LAWS),
        "load": "Poisson, 8 s a load of the sweep, 1,500 requests a load of the turns",
    }
    kept = [_is_kept(law, one) for law, _, one in tunes]
    inside = [found for law, state, one in tunes if (found := _has_true_gain(law, state, one)) is not None]
    same = [one["end"] == "nothing to change" for state in known.values() for one in state.get("best", {}).values()]
    return [
        _first(tunes, shared),
        _count("6.3", f"the recommended configuration keeps its objective in >= {REQUESTS:,} other requests at 90 % of its rate", kept, (20, 20), shared),
        _count("6.4", "the gain's interval has the gain that was measured in turns", inside, (18, 20), shared),
        _count("6.5", "settings that are the best already: nothing to change", same, (_BEST_RUNS, _BEST_RUNS), shared),
    ]  # fmt: skip


def _first(tunes: Sequence[tuple[TritonLaw, State, State]], shared: Mapping[str, Any]) -> Row:
    shares = {(law.kind, str(one["best"])): _share(law, state, one) for law, state, one in tunes}
    known = [share for share in shares.values() if share is not None]
    laws = [law for law in LAWS if sum(found is law for found, _, _ in tunes) >= SEEDS]
    complete = [
        law for law in laws if all(share is not None for (kind, _), share in shares.items() if kind == law.kind)
    ]
    points = [
        one["points"] / sum(len(each.loads) for each in swept(state))
        for law, state, one in tunes
        if len(swept(state)) == len(today(law).configurations)
    ]
    return Row(
        id="6.1",
        what="goodput of the winner against that of a full sweep's winner, on a real Triton",
        value={
            "laws": len(complete),
            "worst_share": min(known, default=None),
            "mean_share": round(mean(known), 4) if known else None,
            "most_of_a_sweeps_points": round(max(points), 4) if points else None,
            "mean_of_a_sweeps_points": round(mean(points), 4) if points else None,
            "longest_s": max((one["seconds"] for _, _, one in tunes), default=None),
        },
        target=">= 97 % with <= 10 % of its measured points and <= 10 minutes, 4 laws",
        limits=[
            ("laws", len(LAWS), ">="),
            ("worst_share", 0.97, ">="),
            ("most_of_a_sweeps_points", 0.1, "<="),
            ("longest_s", 600, "<="),
        ],
        n=len(tunes),
        raw={f"{kind} {best}": share for (kind, best), share in shares.items()},
        **shared,
    )


def _count(name: str, what: str, found: Sequence[bool], target: tuple[int, int], shared: Mapping[str, Any]) -> Row:
    least, of = target
    is_all = least == of
    return Row(
        id=name,
        what=what,
        value={"held": sum(found), "runs": len(found), "missed": len(found) - sum(found)},
        target=f"{least} of {of}" if is_all else f">= {least} of {of}",
        limits=[("held", least, ">="), ("runs", of, ">="), ("missed", 0 if is_all else of - least, "<=")],
        n=len(found),
        **shared,
    )


def _in_turns(law: TritonLaw, state: Mapping[str, Any], one: Configuration) -> float | None:
    """Return the mean capacity of a configuration over all turns; None if one is missing."""
    turns = state.get("turns", {})
    found = [turns.get(f"{turn}: {one.text()}") for turn in range(TURNS)]
    rates = [SweptConfiguration.of(each).capacity_rps(law.objective_s) for each in found if each]
    return mean(rates) if len(rates) == TURNS else None


def _share(law: TritonLaw, state: Mapping[str, Any], one: Mapping[str, Any]) -> float | None:
    """Return the capacity of a tuning's winner over that of the sweep's, in turns; None if they weren't measured yet."""
    if one["best"] is None:
        return 0.0
    if len(swept(state)) < len(today(law).configurations):
        return None
    found, best = sweep.configuration(one["best"]), winner(law, state)
    own_rps, best_rps = _in_turns(law, state, found), _in_turns(law, state, best)
    if found == best:
        return 1.0
    return round(own_rps / best_rps, 4) if own_rps is not None and best_rps else None


def _is_kept(law: TritonLaw, one: Mapping[str, Any]) -> bool:
    kept: Mapping[str, float] = one.get("kept") or {"requests": 0, "p99_ms": math.inf}
    # A load at a rate has a random number of requests.
    return kept["requests"] >= 0.95 * REQUESTS and kept["p99_ms"] <= 1000 * law.objective_s


def _has_true_gain(law: TritonLaw, state: Mapping[str, Any], one: Mapping[str, Any]) -> bool | None:
    """Return whether the interval has the gain in turns; None if that wasn't measured yet, and false without an interval."""
    if one["interval"] is None or one["best"] is None:
        return False
    best_rps = _in_turns(law, state, sweep.configuration(one["best"]))
    today_rps = _in_turns(law, state, sweep.configuration(one["today"]))
    if best_rps is None or not today_rps:
        return None
    low, high = one["interval"]
    return bool(low <= best_rps / today_rps - 1 <= high)
