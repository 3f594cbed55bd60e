"""The comparison of variants as text, made from the document. Pure."""

from __future__ import annotations

import textwrap

from halcyon_measure.results.figure import Figure
from halcyon_measure.results.number_text import NONE, number
from halcyon_measure.results.sections.analysis import Variant, VariantsDocument

_WIDTH = 80


def page(document: VariantsDocument) -> str:
    """Return the comparison as text, at most 80 columns wide."""
    lines = [answer(document), ""]
    lines.append(
        f"{'variant':<13}{'size':>9}{'ratio':>7}{'right':>8}{'same':>8}{'max dev':>9}{'load ms':>9}{'MiB':>6}{'p99 ms':>8}"
    )
    for one in document.variants:
        if one.failure:
            lines += _wrapped(f"{one.name:<13}", f"NOT MADE: {one.failure}")
            continue
        lines.append(
            f"{one.name:<13}{_size(one.size):>9}{_percent(one.size_ratio, 0):>7}{_percent(one.accuracy, 1):>8}"
            f"{_percent(one.same_label, 1):>8}{_percent(one.largest_deviation, 2):>9}{number(one.load.value):>9}"
            f"{number((one.memory.value or 0) / 2**20):>6}{number(one.p99.value) + ('?' if one.p99.reason else ''):>8}"
        )
    lines += [
        "",
        f"rows/s with batch {document.batch} on {document.threads} thread{'s' if document.threads > 1 else ''}, in turns, 95 % intervals:",
    ]
    lines += [
        f"  {one.name:<13}{number(one.rate.value):>9} {_interval(one.rate)}"
        for one in document.variants
        if not one.failure
    ]
    lines += [f"right of {document.rows} rows, 95 % intervals:"]
    lines += [
        f"  {one.name:<13}{_percent(one.accuracy, 1):>9} {_shares(one.accuracy)}"
        for one in document.variants
        if not one.failure
    ]
    for one in document.variants:
        for left in one.left:
            examples = ", ".join(left.examples)
            lines += _wrapped(
                "FP32 left: ", f"{one.name}: {left.operator}, {left.nodes} nodes ({examples}): {left.reason}"
            )
    reasons = dict.fromkeys(one.accuracy.reason for one in document.variants if one.accuracy.reason and not one.failure)
    for reason in reasons:
        lines += _wrapped("right     ", f"not measured: {reason}")
    return "\n".join(lines)


def answer(document: VariantsDocument) -> str:
    """Return one sentence with the result of the comparison."""
    made = [one for one in document.variants[1:] if not one.failure]
    base = document.variants[0]
    if not made:
        return f"{document.model}: no variant could be made."
    faster = [one for one in made if (one.rate.value or 0) > (base.rate.value or 0) and not _overlap(one, base)]
    if not faster:
        least = min(made, key=lambda one: one.size.value or 0)
        said = f"no variant is shown to be faster; {least.name} has"
        return f"{document.model}: {said} {_percent(least.size_ratio, 0)} of fp32's size{_lost(least, base)}."
    best = max(faster, key=lambda one: one.rate.value or 0)
    gain = f"{(best.rate.value or 0) / (base.rate.value or 1):.2f} times fp32's rate"
    return (
        f"{document.model}: {best.name} has {gain} and {_percent(best.size_ratio, 0)} of its size{_lost(best, base)}."
    )


def _lost(variant: Variant, base: Variant) -> str:
    if variant.accuracy.value is None or base.accuracy.value is None:
        return ""
    difference = 100 * (variant.accuracy.value - base.accuracy.value)
    return (
        f", with {abs(difference):.1f} points {'less' if difference < 0 else 'more'} accuracy"
        if difference
        else ", with the same accuracy"
    )


def _overlap(one: Variant, other: Variant) -> bool:
    if one.rate.interval is None or other.rate.interval is None:
        return True
    return one.rate.interval[0] <= other.rate.interval[1] and other.rate.interval[0] <= one.rate.interval[1]


def _size(figure: Figure) -> str:
    value = figure.value or 0
    return f"{value / 1e6:.1f} MB" if value >= 1e6 else f"{value / 1e3:.1f} kB"


def _percent(figure: Figure, digits: int) -> str:
    return NONE if figure.value is None else f"{100 * figure.value:.{digits}f} %"


def _interval(figure: Figure) -> str:
    return f"[{number(figure.interval[0])}, {number(figure.interval[1])}]" if figure.interval else ""


def _shares(figure: Figure) -> str:
    return f"[{100 * figure.interval[0]:.1f}, {100 * figure.interval[1]:.1f}] %" if figure.interval else ""


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=head, subsequent_indent="  ") or [head]
