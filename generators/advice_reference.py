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

Halcyon compares the settings of each model with autoscaling with the signals that it scales by. If a change of the spec would
help, it is listed in `status.advice`, with the evidence, the advised value and the gain that is expected. `halcyon explain` and
the dashboard show it; `halcyon explain -o json` has a merge patch for each one. Halcyon never makes such a change, and advice
is no condition: a model with advice is as ready as any other.

- Advice is based on the signals of five minutes. It is shown after its rule has applied for {HOLD_S / 60:.0f} minutes, and removed after the
  rule hasn't applied for as long.
- At most {MAX_ADVICE} are shown, the one with the largest gain first. The list changes every {WRITE_INTERVAL_S / 60:.0f} minutes at most, and only if a
  rule or an advised value changes. Evidence and gain have the numbers from the time when the advice was first shown.
- A rule without its signals gives no advice, and doesn't remove one. A model at rest keeps its advice.
- Gains in rows or requests per second follow the line of the model's batch times; a larger batch than any before, or another
  instance, may need more memory, or more time than the line says. [Measure](../guides/measure.md) the change before you make it,
  or make it as a [canary](../guides/canary.md).

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
