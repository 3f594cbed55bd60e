"""Batch times of a replica by number of instances, which a search measured and stores for the planner. Pure."""

from __future__ import annotations

from halcyon.api.documents.measured_capacity import MeasuredLine
from halcyon_tune.errors import TuneError
from halcyon_tune.points import Configuration
from halcyon_tune.search import Search

_MAX_TIME_RATIO = 2.0
"""Ratio of the batch times that explain the measured latencies to those in Triton's statistics, above which nothing is
stored. Triton's statistics then miss most of the time of a request."""
_MAX_LINES = 8
_MIN_MS = 0.001


def taught_lines(search: Search, served: Configuration) -> tuple[MeasuredLine, ...]:
    """Return the measured batch times for the planner, with the threads of the configuration that is served.

    The times for the instances of this configuration come first.

    Raises:
        TuneError: these times weren't measured, or the measured latencies contradict them.
    """
    times, verification = search.profile.times, search.verification
    if (
        verification is not None
        and verification.estimates.get(served)
        and verification.factor(served) > _MAX_TIME_RATIO
    ):
        raise TuneError(
            f"requests take {verification.factor(served):.1f} times as long as the batches of Triton's statistics say, so nothing is taught"
        )
    families = [family for family in times.measured if family[1] == served.threads]
    families.sort(key=lambda family: (family != served.family, family[0]))
    lines = []
    for family in families[:_MAX_LINES]:
        sizes = [*times.means(family), *times.means(search.profile.base)]
        # Beyond a jump in the times, larger batches show nothing about those that are served.
        largest = max(
            size for size in sizes if not times.is_bent(search.profile.base) or size <= served.max_batch or size == 1
        )
        line = times.line(Configuration(instances=family[0], max_batch=largest, threads=family[1]))
        if line is not None:
            lines.append(
                MeasuredLine(
                    instances=family[0],
                    constant_milliseconds=max(round(1000 * line.t0_s, 4), _MIN_MS),
                    per_row_milliseconds=round(1000 * line.row_s, 4),
                    max_batch_size=largest,
                )
            )
    if not lines or lines[0].instances != served.instances:
        raise TuneError(f"no batch times with {served.text()} were measured, so nothing is taught")
    return tuple(lines)
