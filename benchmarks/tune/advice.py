"""Row 7.3 of the table `tune`: the advice on staged faults, what following it brings, and the advice on healthy models.

python -m benchmarks.tune.advice    # 4 minutes on one core
"""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.quality.rows import Row, record
from benchmarks.tune.staged_advice import FAULTS, healthy, run

STAND_IN = "the simulator's models, batcher, balancers and GPU instead of Triton and HAProxy; samples, rules and selection are the operator's"


def measure() -> Row:
    """Simulate all faults, each with and without the advice, and the healthy models."""
    faults: list[dict[str, Any]] = []
    for rule, gain, model in FAULTS:
        before = run(model)
        advice = {one.rule: one for one in before.advice}
        found = advice.get(rule)
        entry: dict[str, Any] = {
            "model": model.name,
            "staged": rule,
            "advice": [(one.rule, one.finding.value) for one in before.advice],
        }
        if found is not None:
            brought = gain(model, before, run(model.following(found)))
            entry |= {"told": found.finding.share, "brought": brought, "of the gain": brought / found.finding.share}
        faults.append(entry)
        sys.stderr.write(f"advice: {entry}\n")
    fits = []
    for model in healthy():
        quiet = run(model)
        fits.append((model.name, [one.rule for one in quiet.advice], quiet.shown_at))
    shares = [float(entry.get("of the gain", 0.0)) for entry in faults]
    return Row(
        id="7.3",
        what="staged faults: the right advice, and following it; healthy models under 4 loads each: none",
        value={
            "faults": len(faults),
            "right advice, the first one": sum(
                next(iter(entry["advice"]), ("", ""))[0] == entry["staged"] for entry in faults
            ),
            "bring half of the gain told": sum(share >= 0.5 for share in shares),
            "least share of the gain told": round(min(shares), 2),
            "healthy runs": len(fits),
            "healthy runs with advice": sum(bool(shown) for _, _, shown in fits),
        },
        target="12 of 12 right, each brings >= half of the gain told; healthy: none",
        limits=[
            ("right advice, the first one", 12, "=="),
            ("bring half of the gain told", 12, "=="),
            ("healthy runs with advice", 0, "=="),
        ],
        command="python -m benchmarks.tune.advice",
        stand_ins=STAND_IN,
        n=len(faults) + len(fits),
        law="12 staged and 8 healthy models, each with its own",
        load="Poisson, 30 minutes; 25 hours for a day's minimum",
        raw={"faults": faults, "healthy": fits},
    )


if __name__ == "__main__":
    record("tune", [measure()])
