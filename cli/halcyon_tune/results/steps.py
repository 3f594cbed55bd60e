"""Six steps of a search, each with its findings in sentences. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from halcyon_measure.results.number_text import significant
from halcyon_tune.batch_times import Family
from halcyon_tune.points import Callers, Point
from halcyon_tune.search import Search

TITLES = {
    1: "one instance, callers rising",
    2: "more instances, while they gain",
    3: "all configurations, predicted",
    4: "those that could be best, measured",
    5: "the best and today's settings in turns",
    6: "replicas",
}


@dataclass(frozen=True)
class Step:
    """Step of a search, with its findings in sentences."""

    number: int
    findings: tuple[str, ...]

    @property
    def title(self) -> str:
        """Short description of the step."""
        return TITLES[self.number]


def steps(search: Search, replicas: str = "") -> tuple[Step, ...]:
    """Return the steps of a search that have findings.

    `replicas` is the sentence about step 6.
    """
    findings = {1: _first(search), 2: _second(search), 3: _third(search), 4: _fourth(search), 5: _fifth(search)}
    findings[6] = [replicas] if replicas else []
    return tuple(Step(number, tuple(lines)) for number, lines in findings.items() if lines)


def point_text(point: Point) -> str:
    """Return a measurement as one line of text."""
    head = f"{point.configuration.text()}, {point.load.text()}"
    if point.failure is not None:
        return f"{head}: {point.why}"
    memory = f", {point.memory_bytes / 2**20:.0f} MiB" if point.memory_bytes is not None else ""
    return f"{head}: {significant(point.throughput_rps, 4)} answered/s, P99 {significant(1000 * point.p99_s, 3)} ms{memory}"


def _first(search: Search) -> list[str]:
    profile = search.profile
    means = profile.times.means(profile.base)
    if not means:
        return []
    by_size = ", ".join(
        f"S({rows}) {significant(1000 * seconds, 3)} ms" for rows, seconds in means.items() if _is_shown(rows, means)
    )
    lines = [by_size]
    points = [point for point in profile.points if point.configuration.family == profile.base and point.failure is None]
    line = profile.times.line(points[-1].configuration) if points else None
    if line is not None:
        lines.append(f"line: {significant(1000 * line.t0_s, 3)} + {significant(1000 * line.row_s, 3)} b ms")
    if profile.times.is_bent(profile.base):
        lines.append(
            f"it isn't straight: a size is {100 * profile.times.bend(profile.base):.0f} % off it, so each batch size has its own"
        )
    measured = [point for point in points if point.memory_bytes is not None]
    if measured:
        memory = max(measured, key=lambda point: point.memory_bytes or 0)
        lines.append(f"memory: {(memory.memory_bytes or 0) / 2**20:.0f} MiB with {memory.load.text()}")
    return lines  # fmt: skip


def _is_shown(rows: int, means: dict[int, float]) -> bool:
    return len(means) <= 8 or rows in {min(means), max(means)} or rows & (rows - 1) == 0


def _second(search: Search) -> list[str]:
    profile, lines = search.profile, []
    for family in search.space.families:
        sharing = profile.times.sharing(family)
        points = [
            point
            for point in profile.points
            if point.configuration.family == family and isinstance(point.load, Callers)
        ]
        if family == profile.base or not points:
            continue
        if points[-1].failure is not None:
            lines.append(f"{_family(family)}: {points[-1].why}")
            continue
        cost = "" if sharing is None else f", a batch takes {sharing:.2f} times as long"
        lines.append(f"{_family(family)}: {significant(points[-1].throughput_rps, 4)} answered/s{cost}")
    return lines


def _family(family: Family) -> str:
    instances, threads = family
    text = f"{instances} instance" + ("s" if instances > 1 else "")
    return text if threads is None else f"{text} of {threads} thread" + ("s" if threads > 1 else "")


def _third(search: Search) -> list[str]:
    verification = search.verification
    if verification is None:
        return []
    total = len(search.space.configurations)
    return [f"{len(verification.candidates)} of {total} configurations could be the best by the line and the simulator"]


def _fourth(search: Search) -> list[str]:
    verification = search.verification
    if verification is None:
        return []
    lines = []
    for configuration in sorted(
        verification.estimates, key=lambda configuration: -verification.opinion(configuration).score
    ):
        opinion = verification.opinion(configuration)
        lines.append(
            f"{configuration.text()}: {significant(opinion.capacity_rps, 4)} requests/s within the objective, {_points(opinion.points)}"
        )
    return lines


def _points(count: int) -> str:
    return f"{count} point" + ("" if count == 1 else "s")


def _fifth(search: Search) -> list[str]:
    gain = search.turns.gain() if search.turns is not None else None
    if gain is None:
        return []
    interval = "" if gain.interval is None else f" ({_percent(gain.interval[0])} to {_percent(gain.interval[1])})"
    rounds = f"{gain.rounds} round" + ("" if gain.rounds == 1 else "s")
    return [f"gain {_percent(gain.value)}{interval} in {rounds}"]


def _percent(value: float) -> str:
    return f"{100 * value:+.0f} %"
