"""Rows 6.1 and 6.3 to 6.5 from the results recorded so far. Pure."""

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


def rows(recorded: Mapping[str, State]) -> list[Row]:
    """Return the rows from the results so far. `recorded` has them by the kind of the law."""
    laws = {law.kind: law for law in LAWS}
    tunes = [
        (laws[kind], state, tuning) for kind, state in recorded.items() for tuning in state.get("tunes", {}).values()
    ]
    complete_laws = sum(not missing(laws[kind], state) for kind, state in recorded.items())
    why = "" if complete_laws == len(LAWS) else f"{complete_laws} of {len(LAWS)} laws are complete; {_COMMAND} goes on"
    shared: State = {
        "command": _COMMAND,
        "stand_ins": "models of Triton's Python backend that sleep on two CPU cores",
        "why": why,
        "law": ", ".join(law.label for law in LAWS),
        "load": "Poisson, 8 s a load of the sweep, 1,500 requests a load of the turns",
    }
    kept = [_is_kept(law, tuning) for law, _, tuning in tunes]
    inside = [has_gain for law, state, tuning in tunes if (has_gain := _has_true_gain(law, state, tuning)) is not None]
    same = [
        tuning["end"] == "nothing to change" for state in recorded.values() for tuning in state.get("best", {}).values()
    ]
    return [
        _winner_row(tunes, shared),
        _count_row("6.3", f"the recommended configuration keeps its objective in >= {REQUESTS:,} other requests at 90 % of its rate", kept, (20, 20), shared),
        _count_row("6.4", "the gain's interval has the gain that was measured in turns", inside, (18, 20), shared),
        _count_row("6.5", "settings that are the best already: nothing to change", same, (_BEST_RUNS, _BEST_RUNS), shared),
    ]  # fmt: skip


def _winner_row(tunes: Sequence[tuple[TritonLaw, State, State]], shared: Mapping[str, Any]) -> Row:
    shares = {(law.kind, str(tuning["best"])): _share(law, state, tuning) for law, state, tuning in tunes}
    finished = [share for share in shares.values() if share is not None]
    laws = [law for law in LAWS if sum(tuned_law is law for tuned_law, _, _ in tunes) >= SEEDS]
    complete = [
        law for law in laws if all(share is not None for (kind, _), share in shares.items() if kind == law.kind)
    ]
    points = [
        tuning["points"] / sum(len(configuration.loads) for configuration in swept(state))
        for law, state, tuning in tunes
        if len(swept(state)) == len(today(law).configurations)
    ]
    return Row(
        id="6.1",
        what="goodput of the winner against that of a full sweep's winner, on a real Triton",
        value={
            "laws": len(complete),
            "worst_share": min(finished, default=None),
            "mean_share": round(mean(finished), 4) if finished else None,
            "most_of_a_sweeps_points": round(max(points), 4) if points else None,
            "mean_of_a_sweeps_points": round(mean(points), 4) if points else None,
            "longest_s": max((tuning["seconds"] for _, _, tuning in tunes), default=None),
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


def _count_row(
    name: str, title: str, outcomes: Sequence[bool], target: tuple[int, int], shared: Mapping[str, Any]
) -> Row:
    least, total = target
    is_all = least == total
    return Row(
        id=name,
        what=title,
        value={"held": sum(outcomes), "runs": len(outcomes), "missed": len(outcomes) - sum(outcomes)},
        target=f"{least} of {total}" if is_all else f">= {least} of {total}",
        limits=[("held", least, ">="), ("runs", total, ">="), ("missed", 0 if is_all else total - least, "<=")],
        n=len(outcomes),
        **shared,
    )


def _in_turns(law: TritonLaw, state: Mapping[str, Any], configuration: Configuration) -> float | None:
    """Return the mean capacity of a configuration over all turns; None if one is missing."""
    turns = state.get("turns", {})
    documents = [turns.get(f"{turn}: {configuration.text()}") for turn in range(TURNS)]
    rates = [
        SweptConfiguration.from_document(document).capacity_rps(law.objective_s) for document in documents if document
    ]
    return mean(rates) if len(rates) == TURNS else None


def _share(law: TritonLaw, state: Mapping[str, Any], tuning: Mapping[str, Any]) -> float | None:
    """Return the capacity of a tuning's winner over that of the sweep's, in turns; None if they weren't measured yet."""
    if tuning["best"] is None:
        return 0.0
    if len(swept(state)) < len(today(law).configurations):
        return None
    own, best = sweep.configuration(tuning["best"]), winner(law, state)
    own_rps, best_rps = _in_turns(law, state, own), _in_turns(law, state, best)
    if own == best:
        return 1.0
    return round(own_rps / best_rps, 4) if own_rps is not None and best_rps else None


def _is_kept(law: TritonLaw, tuning: Mapping[str, Any]) -> bool:
    kept: Mapping[str, float] = tuning.get("kept") or {"requests": 0, "p99_ms": math.inf}
    # A load at a rate has a random number of requests.
    return kept["requests"] >= 0.95 * REQUESTS and kept["p99_ms"] <= 1000 * law.objective_s


def _has_true_gain(law: TritonLaw, state: Mapping[str, Any], tuning: Mapping[str, Any]) -> bool | None:
    """Return whether the interval has the gain in turns; None if that wasn't measured yet, and false without an interval."""
    if tuning["interval"] is None or tuning["best"] is None:
        return False
    best_rps = _in_turns(law, state, sweep.configuration(tuning["best"]))
    today_rps = _in_turns(law, state, sweep.configuration(tuning["today"]))
    if best_rps is None or not today_rps:
        return None
    low, high = tuning["interval"]
    return bool(low <= best_rps / today_rps - 1 <= high)
