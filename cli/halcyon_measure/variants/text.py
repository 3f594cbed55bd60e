"""Comparison of variants as text, made from the document. Pure."""

from __future__ import annotations

import textwrap

from halcyon_measure.results.figure import Figure
from halcyon_measure.results.number_text import NONE, count_text, number
from halcyon_measure.results.sections.analysis import Variant, VariantsDocument

_WIDTH = 80


def page(document: VariantsDocument) -> str:
    """Return the comparison as text, at most 80 columns wide."""
    lines = [*textwrap.wrap(answer(document), _WIDTH, break_long_words=False, break_on_hyphens=False), ""]
    lines.append(
        f"{'variant':<13}{'size':>9}{'ratio':>7}{'right':>8}{'same':>8}{'max dev':>9}{'load ms':>9}{'MiB':>6}{'p99 ms':>8}"
    )
    for variant in document.variants:
        if variant.failure:
            lines += _wrapped(f"{variant.name:<13}", f"NOT MADE: {variant.failure}")
            continue
        lines.append(
            f"{variant.name:<13}{_size(variant.size):>9}{_percent(variant.size_ratio, 0):>7}"
            f"{_percent(variant.accuracy, 1):>8}{_percent(variant.same_label, 1):>8}"
            f"{_percent(variant.largest_deviation, 2):>9}{number(variant.load.value):>9}"
            f"{number((variant.memory.value or 0) / 2**20):>6}"
            f"{number(variant.p99.value) + ('?' if variant.p99.reason else ''):>8}"
        )
    lines += [
        "",
        f"rows/s with batch {document.batch} on {count_text(document.threads, 'thread')}, in turns, 95 % intervals:",
    ]
    lines += [
        f"  {variant.name:<13}{number(variant.rate.value):>9} {_interval(variant.rate)}"
        for variant in document.variants
        if not variant.failure
    ]
    lines += [f"right of {document.rows} rows, 95 % intervals:"]
    lines += [
        f"  {variant.name:<13}{_percent(variant.accuracy, 1):>9} {_shares(variant.accuracy)}"
        for variant in document.variants
        if not variant.failure
    ]
    for variant in document.variants:
        for operator in variant.left:
            examples = ", ".join(operator.examples)
            lines += _wrapped(
                "FP32 left: ",
                f"{variant.name}: {operator.operator}, {count_text(operator.nodes, 'node')} ({examples}): {operator.reason}",
            )
    reasons = dict.fromkeys(
        variant.accuracy.reason for variant in document.variants if variant.accuracy.reason and not variant.failure
    )
    for reason in reasons:
        lines += _wrapped("right     ", f"not measured: {reason}")
    return "\n".join(lines)


def answer(document: VariantsDocument) -> str:
    """Return one sentence with the result of the comparison."""
    variants = [variant for variant in document.variants[1:] if not variant.failure]
    base = document.variants[0]
    if not variants:
        return f"{document.model}: no variant could be made."
    faster = [
        variant
        for variant in variants
        if (variant.rate.value or 0) > (base.rate.value or 0) and not _overlap(variant, base)
    ]
    if not faster:
        smallest = min(variants, key=lambda variant: variant.size.value or 0)
        finding = f"no variant is shown to be faster; {smallest.name} has"
        return f"{document.model}: {finding} {_percent(smallest.size_ratio, 0)} of fp32's size{_accuracy_change(smallest, base)}."
    best = max(faster, key=lambda variant: variant.rate.value or 0)
    gain = f"{(best.rate.value or 0) / (base.rate.value or 1):.2f} times fp32's rate"
    return f"{document.model}: {best.name} has {gain} and {_percent(best.size_ratio, 0)} of its size{_accuracy_change(best, base)}."


def _accuracy_change(variant: Variant, base: Variant) -> str:
    if variant.accuracy.value is None or base.accuracy.value is None:
        return ""
    difference = 100 * (variant.accuracy.value - base.accuracy.value)
    return (
        f", with {abs(difference):.1f} points {'less' if difference < 0 else 'more'} accuracy"
        if difference
        else ", with the same accuracy"
    )


def _overlap(first: Variant, second: Variant) -> bool:
    if first.rate.interval is None or second.rate.interval is None:
        return True
    return first.rate.interval[0] <= second.rate.interval[1] and second.rate.interval[0] <= first.rate.interval[1]


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
