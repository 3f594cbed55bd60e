"""Generator of docs/reference/advice.md: the rules of `status.advice`.

`scripts/generate docs` runs it in the repository's root: `python -m generators.advice_reference`.
"""

from __future__ import annotations

import re
import sys

from halcyon.control.advice.rules import RULES
from halcyon.control.advice.selection import HOLD_S, MAX_ADVICE, WRITE_INTERVAL_S

_HEAD = f"""\
# Advice

<!-- Generated from halcyon/control/advice/rules.py by `scripts/generate docs`. A test keeps it up to date. -->

For each model with autoscaling, Halcyon compares the settings in the spec with the model's signals. If a change to the spec would
help, `status.advice` lists the change, with the evidence, the advised value and the expected gain. `halcyon explain` and the
dashboard also show the advice, and `halcyon explain -o json` contains a merge patch for each change. Halcyon never applies an advised
change itself. Advice is not a condition, and does not affect whether a model is `Ready`.

- Advice is based on the signals of the last five minutes. Halcyon shows advice when its rule has applied for {HOLD_S / 60:.0f} minutes,
  and removes the advice when its rule has not applied for {HOLD_S / 60:.0f} minutes.
- A model has at most {MAX_ADVICE} pieces of advice, sorted by expected gain. The list of advice changes at most once
  every {WRITE_INTERVAL_S / 60:.0f} minutes, and only if a rule or an advised value changes. The figures in a piece of advice (its
  evidence and its expected gain) are those from the time when the advice was first shown.
- If the signals that a rule needs are missing, Halcyon gives no new advice based on this rule and doesn't remove earlier advice.
  An idle model keeps its advice.
- Gains in rows or requests per second are computed from a linear fit of the model's batch times. A batch that is larger than any earlier
  batch, or an additional instance, may need more memory, or more time than the linear fit predicts. [Measure](../guides/measure.md) an advised
  change before you apply it, or roll it out as a [canary](../guides/canary.md).

## Rules

| rule | field | applies if | signals |
| --- | --- | --- | --- |
"""
_SIGNALS = {
    "start_s": "last start of a pod",
    "line": "batch times of several sizes",
    "request_rows": "rows per request",
    "batch_rows": "rows per execution",
    "rate": "answers per second",
    "replicas": "ready replicas",
    "busy": "time in execution",
    "waiting": "requests that wait",
    "largest_rows": "largest batch",
    "gpu": "GPU utilisation, measured at the GPU",
    "wait_s": "time in Triton's queue",
    "peak_replicas": "arrivals of a day",
}


def page() -> str:
    """Return the page in Markdown."""
    rows = []
    for rule in RULES:
        signals = ", ".join(_SIGNALS[name] for name in rule.needs.split())
        field = f"[`{rule.field}`](modeldeployment.md#{re.sub(r'[^a-z0-9-]', '', rule.field.lower())})"
        rows.append(f"| {rule.name} | {field} | {rule.when} | {signals} |\n")
    return "".join([_HEAD, *rows])


if __name__ == "__main__":
    sys.stdout.write(page())
