"""Counts of a model as text, made from the section `static`. Pure."""

from __future__ import annotations

import textwrap

from halcyon_measure.results.sections.static import Static, StaticSize

_WIDTH = 80
_MAX_OPERATORS = 12
_NONE = "-"


def page(static: Static) -> str:
    """Return the counts as text, at most 80 columns wide."""
    lines = [
        *textwrap.wrap(answer(static), _WIDTH, break_long_words=False, break_on_hyphens=False),
        "",
        *_sizes(static),
    ]
    first = static.sizes[0]
    if first.operators:
        lines += ["", *_operators(first)]
    lines += _uncounted(static)
    return "\n".join(lines)


def answer(static: Static) -> str:
    """Return one sentence with the counts for one row."""
    size = static.sizes[0]
    counts = f"{amount(size.macs / size.batch).rstrip()} MACs ({amount(size.flops / size.batch).rstrip()} FLOPs) a row"
    if static.source == "given":
        return f"{static.file}: {counts}, as --flops gives them."
    least = "" if static.complete else "at least "
    return (
        f"{static.file}: {least}{counts}, {amount(static.parameters).rstrip()} parameters in "
        f"{amount(static.weight_bytes)}B"
        f"{f' ({static.datatype})' if static.datatype else ''}."
    )


def amount(value: float | None) -> str:
    """Format a number with three significant digits and a decimal prefix, such as `4.09 G`."""
    if value is None:
        return _NONE
    for prefix, unit in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= 0.9995 * unit:
            scaled = value / unit
            return f"{scaled:.{2 if scaled < 9.995 else 1 if scaled < 99.95 else 0}f} {prefix}"
    return f"{value:.0f} " if value == round(value) else f"{value:.3g} "


def _sizes(static: Static) -> list[str]:
    head = f"{'batch':>5}{'MACs':>9}{'FLOPs':>9}{'in':>9}{'out':>9}{'between':>9}{'peak':>9}{'least':>9}{'unfused':>9}"
    rows = [head.rstrip()]
    for size in static.sizes:
        cells = [size.macs, size.flops, size.input_bytes, size.output_bytes, size.activation_bytes]
        cells += [size.peak_activation_bytes, size.least_bytes, size.unfused_bytes]
        rows.append(f"{size.batch:>5}" + "".join(f"{amount(cell).rstrip():>9}" for cell in cells))
    if static.sizes[0].least_bytes:
        rows += ["      bytes: in, out, between them, most at a time, least and unfused traffic"]
    return rows


def _operators(size: StaticSize) -> list[str]:
    rows = [f"{f'operator (batch {size.batch})':<32}{'nodes':>6}{'MACs':>10}{'share':>7}{'weights':>10}{'moved':>10}"]
    operators = size.operators[:_MAX_OPERATORS]
    for operator in operators:
        share = f"{operator.macs / size.macs:.0%}" if size.macs and operator.macs else _NONE
        macs = amount(operator.macs) if operator.macs else _NONE
        rows.append(
            f"{operator.operator[:32]:<32}{operator.nodes:>6}{macs.rstrip():>10}{share:>7}"
            f"{amount(operator.weight_bytes).rstrip():>10}{amount(operator.activation_bytes).rstrip():>10}"
        )
    if len(size.operators) > len(operators):
        rows.append(f"and {len(size.operators) - len(operators)} more; -o json has all")
    return rows


def _uncounted(static: Static) -> list[str]:
    lines: list[str] = []
    for kind in ("element-wise", "data movement"):
        names = [f"{operator.operator} {operator.nodes}" for operator in static.uncounted if operator.kind == kind]
        if names:
            lines += _wrapped(f"no MACs: {kind}: ", ", ".join(names))
    for operator in static.uncounted:
        if operator.kind == "unknown":
            nodes = (
                f"{operator.nodes} node{'s' if operator.nodes > 1 else ''}, for example {', '.join(operator.examples)}"
            )
            lines += _wrapped("NOT COUNTED: ", f"{operator.operator}: {operator.reason} ({nodes})")
    return ["", *lines] if lines else []


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=head, subsequent_indent="  ") or [head]
