"""Sections of a document as lines of text: the phases as a small table, each other section as one line. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.figure import Figure
from halcyon_measure.results.number_text import number, signed_percent
from halcyon_measure.results.sections.batches import Batches
from halcyon_measure.results.sections.cold_start import ColdStart
from halcyon_measure.results.sections.energy import Energy
from halcyon_measure.results.sections.hardware import Hardware
from halcyon_measure.results.sections.phases import Phases
from halcyon_measure.results.sections.second_engine import SecondEngine

_WIDTH = 80
_BAR = 24
_NAMES = {"balancer_held": "held", "balancer_queued": "balancer"}
_GIB = 2**30


def details(document: BenchDocument) -> list[str]:
    """Return the lines on batches, hardware and energy."""
    lines: list[str] = []
    if document.batches is not None:
        lines += _batches(document.batches)
    if document.hardware is not None:
        lines += _hardware(document.hardware)
    if document.energy is not None:
        lines += _energy(document.energy)
    if document.cold_start is not None:
        lines += _cold_start(document.cold_start)
    return lines


def phases(section: Phases) -> list[str]:
    """Return a table of the phases.

    Phases that take no time are omitted, and unmeasured phases have a line with the reason.
    """
    latency = section.end_to_end.value
    if not latency:
        return []
    lines = [f"{'phase':<10}{'ms':>9}{'share':>8}"]
    for part in section.parts:
        value = part.mean.value
        if value is None or value < 0.0005 * latency:
            continue
        share = value / latency
        # Parts that don't add up may be longer than the latency.
        bar = "#" * round(_BAR * min(share, 1.0))
        lines.append(f"{_NAMES.get(part.name, part.name):<10}{value:>9.2f}{100 * share:>7.1f}%  {bar}".rstrip())
    lines.append(
        f"{'latency':<10}{latency:>9.2f}  on average; {'the parts add up' if section.adds_up else 'the parts do NOT add up'}"
    )
    if not section.adds_up or section.reason:
        lines += _wrapped("", section.reason)
    missing: dict[str, list[str]] = {}
    for part in section.parts:
        if part.mean.value is None:
            missing.setdefault(part.mean.reason, []).append(_NAMES.get(part.name, part.name))
    for reason, names in missing.items():
        if reason != section.reason:
            lines += _wrapped("not measured: ", f"{', '.join(names)}: {reason}")
    return lines


def second_engine(section: SecondEngine) -> list[str]:
    """Return a table with the figures of both engines and their differences, and the limits of the comparison."""
    lines = _wrapped("", f"{section.engine} {section.version}: {section.load}" if section.load else section.engine)
    if section.reason:
        return lines + _wrapped("NO RESULT ", section.reason)
    lines.append(f"{'from send':<24}{'halcyon':>10}{section.engine:>15}{'difference':>12}")
    for name, entry in section.rows():
        lines.append(
            f"{name:<24}{number(entry.halcyon.value):>10}{number(entry.other.value):>15}"
            f"{signed_percent(entry.relative.value):>12}"
        )
    lines.append(f"{'measured requests':<24}{section.mean.halcyon.n:>10}{section.requests:>15}")
    if section.delayed:
        lines += _wrapped("note      ", f"{section.engine} sent {section.delayed} of its requests late")
    for reason in dict.fromkeys(entry.other.reason for _, entry in section.rows() if entry.other.value is None):
        lines += _wrapped("-         ", reason)
    for limit in section.limits:
        lines += _wrapped("note      ", f"{section.engine}: {limit}")
    return lines


def _batches(section: Batches) -> Iterator[str]:
    if section.executions.value is None:
        return
    text = f"{section.mean_rows.value or 0:.1f} rows"
    if section.largest.value is not None:
        text += f" of {section.largest.value:.0f}"
    text += f", {section.executions.value:.0f} executions"
    if section.constant.value is not None and section.per_row.value is not None:
        sign = "-" if section.per_row.value < 0 else "+"
        text += f"; S(b) = {section.constant.value:.1f} {sign} {abs(section.per_row.value):.2f} b ms"
    if section.busy.value is not None:
        text += f"; instances busy {100 * section.busy.value:.0f} %"
    yield from _wrapped("batches   ", text)


def _hardware(section: Hardware) -> Iterator[str]:
    if section.gpu_utilization.mean.value is not None:
        use = section.gpu_utilization
        text = (
            f"{_percent(use.mean)} used, P10 to P90 {_percent(use.p10)} to {_percent(use.p90)}, at 80 to 100 % in "
            f"{_percent(section.gpu_at_80)} of the time"
        )
        if section.gpu_memory.max.value is not None and section.gpu_memory_total.value:
            text += f"; {section.gpu_memory.max.value / _GIB:.1f} of {section.gpu_memory_total.value / _GIB:.1f} GiB"
        if section.gpu_power.mean.value is not None:
            text += f"; {section.gpu_power.mean.value:.0f} W"
        yield from _wrapped("GPU       ", text)
    if section.server_cpu.mean.value is not None:
        text = f"{section.server_cpu.mean.value:.2f} cores"
        if section.server_cpu_limit.value is not None:
            text += f" of {section.server_cpu_limit.value:g}"
        if section.server_throttled.value:
            text += f", throttled {_percent(section.server_throttled)} of the time"
        if section.server_memory.max.value is not None:
            text += f"; {section.server_memory.max.value / 2**20:.0f} MiB"
        if section.server_oom_kills.value:
            text += f"; {section.server_oom_kills.value:.0f} processes killed for memory"
        yield from _wrapped("server    ", text)
    for note in section.notes:
        yield from _wrapped("note      ", note)


def _energy(section: Energy) -> Iterator[str]:
    if section.per_inference.value is not None:
        text = f"{section.per_inference.value:.3g} J an inference"
        if section.net_per_inference.value is not None:
            text += f", {section.net_per_inference.value:.3g} J without idle power"
        if section.carbon_per_inference.value is not None:
            text += f", {section.carbon_per_inference.value:.3g} mg CO2"
        yield from _wrapped("energy    ", f"{text} ({section.gpu.source})")
    else:
        yield from _wrapped("energy    ", f"not measured: {section.per_inference.reason}")
    if section.cost_per_thousand.value is not None:
        yield f"cost      {section.cost_per_thousand.value:.4g} for 1,000 inferences"


def _cold_start(section: ColdStart) -> Iterator[str]:
    if section.total.value is None:
        yield from _wrapped("start     ", f"not measured: {'; '.join(section.notes) or section.total.reason}")
        return
    parts = [
        f"{part.name.replace('_', ' ')} {part.mean.value:.1f}" for part in section.parts if part.mean.value is not None
    ]
    text = f"{section.total.value:.1f} s on average of {section.starts}: {', '.join(parts)}"
    yield from _wrapped("start     ", text)


def _percent(figure: Figure) -> str:
    return "-" if figure.value is None else f"{100 * figure.value:.0f} %"


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=head, subsequent_indent=" " * len(head)) or [head]
