"""Row 7.3 of the table `tune`: the advice on staged faults, the gain of following it, and the advice on healthy models.

python -m benchmarks.tune.advice                    # simulated, 4 minutes on one core
python -m benchmarks.tune.advice triton [MODEL...]  # some of the faults on real Triton, 12 minutes
"""

from __future__ import annotations

import json
import sys
from typing import Any

from benchmarks.quality.rows import OUT, Row, record
from benchmarks.tune import advice_on_triton
from benchmarks.tune.staged_advice import FAULTS, healthy, run

RAW = OUT / "raw" / "tune-7.3-simulated.json"
STAND_IN = (
    "the simulator's models, batcher, balancers and GPU, except on real Triton, where Python models sleep and a GPU's "
    "utilisation is that of its instances; samples, rules and selection are the operator's"
)


def measure() -> None:
    """Simulate all faults, each with and without the advice, and the healthy models, and keep the results."""
    faults: list[dict[str, Any]] = []
    for rule, gain, model in FAULTS:
        before = run(model)
        advice = {item.rule: item for item in before.advice}
        advised = advice.get(rule)
        entry: dict[str, Any] = {"model": model.name, "staged": rule}
        entry["advice"] = [(item.rule, item.finding.value) for item in before.advice]
        if advised is not None:
            gain_share = gain(model, before, run(model.following(advised)))
            entry |= {
                "told": advised.finding.share,
                "brought": gain_share,
                "of the gain": gain_share / advised.finding.share,
            }
        faults.append(entry)
        sys.stderr.write(f"advice: {entry}\n")
    fits = []
    for model in healthy():
        quiet = run(model)
        fits.append((model.name, [item.rule for item in quiet.advice], quiet.shown_at))
    RAW.parent.mkdir(parents=True, exist_ok=True)
    RAW.write_text(json.dumps({"faults": faults, "healthy": fits}, indent=1))


def row() -> Row:
    """Return the row of the simulated results and of those on real Triton."""
    simulated = json.loads(RAW.read_text())
    faults, fits, real = simulated["faults"], simulated["healthy"], advice_on_triton.results()
    shares = [float(entry.get("of the gain", 0.0)) for entry in faults]
    staged = [entry for entry in real.values() if entry["staged"]]
    triton_shares = [float(entry.get("of the gain", 0.0)) for entry in staged]
    right = sum(next(iter(entry["advice"]), ("", ""))[0] == entry["staged"] for entry in faults)
    return Row(
        id="7.3",
        what="staged faults: the right advice, and following it; healthy models under 4 loads each: none",
        value={
            "faults": len(faults),
            "right advice, the first one": right,
            "bring half of the gain told": sum(share >= 0.5 for share in shares),
            "least share of the gain told": round(min(shares), 2),
            "healthy runs": len(fits),
            "healthy runs with advice": sum(bool(shown) for _, _, shown in fits),
            "faults on real Triton": len(staged),
            "right advice there": sum(entry["staged"] in entry["advice"] for entry in staged),
            "least share of the gain told there": round(min(triton_shares), 2) if triton_shares else None,
        },
        target="12 of 12 right, each brings >= half of the gain told; healthy: none",
        limits=[
            ("right advice, the first one", 12, "=="),
            ("bring half of the gain told", 12, "=="),
            ("healthy runs with advice", 0, "=="),
        ],
        command="python -m benchmarks.tune.advice",
        stand_ins=STAND_IN,
        why="the faults that need several replicas, a day, a start or a GPU's host weren't staged on real Triton",
        n=len(faults) + len(fits),
        law="12 staged and 8 healthy models, each with its own",
        load="Poisson, 30 minutes; 25 hours for a day's minimum",
        raw={**simulated, "triton": real},
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["triton"]:
        advice_on_triton.measure(sys.argv[2:])
    else:
        measure()
    record("tune", [row()])
