"""Generator of docs/reference/verdicts.md: the rules of the verdict on a run.

`scripts/generate docs` runs it in the repository's root: `python -m generators.verdicts_reference`.
"""

from __future__ import annotations

import sys

from halcyon_measure.breakdown.limits import FIGURES, RULES

_HEAD = """\
# Verdicts of `halcyon bench`

<!-- Generated from halcyon_measure/breakdown/limits.py by `scripts/generate docs`. A test keeps it up to date. -->

The verdict names what limited a run of `halcyon bench`. The verdict is in the last sentence of the output, and in the
section `verdict` of [bench.json](bench.md). The verdict is the first rule in the following table that holds and is not
just a consequence of another rule. If two independent rules hold, either of them may name the actual limit of the run,
so the verdict is marked as *unsure*. If no rule holds, the verdict is `unknown`.

## Rules

A rule holds if all of its conditions before the word *unless* hold, and none of the conditions after *unless* holds. If a figure wasn't
measured, a condition that compares this figure with a value counts as not met.

| limit | conditions | evidence | what would change it | field | consequences |
| --- | --- | --- | --- | --- | --- |
"""
_FIGURES = """
## Figures

| figure | meaning |
| --- | --- |
"""


def page() -> str:
    """Return the page in Markdown."""
    rows = []
    for rule in RULES:
        conditions = ", ".join(map(str, rule.bounds))
        if rule.unless:
            conditions += " *unless* " + ", ".join(map(str, rule.unless))
        evidence = ", ".join(f"`{name}`" for name in rule.evidence)
        field = f"`{rule.field}`" if rule.field else ""
        rows.append(
            f"| {rule.limit} | {conditions} | {evidence} | {rule.change} | {field} | {', '.join(rule.causes)} |\n"
        )
    figures = [f"| `{name}` | {text.format('*x*')} |\n" for name, text in FIGURES.items()]
    return "".join([_HEAD, *rows, _FIGURES, *figures])


if __name__ == "__main__":
    sys.stdout.write(page())
