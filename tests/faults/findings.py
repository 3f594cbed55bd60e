"""What the campaigns have found in the product, and their false alarms. Both are shown in docs/quality/faults.md."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """A divergence that was a mistake of the product, and is mended."""

    what: str
    how: str
    """The plan that has found it."""
    test: str
    """Path of the test that keeps it."""


@dataclass(frozen=True)
class FalseAlarm:
    """A kind of divergence that was a mistake of the tests."""

    what: str
    plans: int
    """Number of plans that it has affected."""


FOUND: tuple[Finding, ...] = (
    Finding(
        "Limits of a canary's analysis with mode Disabled have no effect, and no condition said so (metrics alone were named)",
        "reading which fields each mode leaves without effect, for the list of mutations that may be silent",
        "tests/unit/api/spec/test_defaults.py::test_limits_of_a_disabled_analysis_are_reported_as_ineffective",
    ),
)
FALSE_ALARMS: tuple[FalseAlarm, ...] = (
    FalseAlarm(
        "The first 60 accepted mutations: generations in conditions, statuses of Deployments and revisions kept on purpose were compared",
        60,
    ),
    FalseAlarm("Names and certificates of another installation were compared; the results were discarded", 42),
    FalseAlarm("The key of a balancer's drain was compared; the results were discarded", 12),
    FalseAlarm("The age of a report in a message was compared; the results were discarded", 1),
    FalseAlarm(
        "Secrets were rotated a second time before the balancers ran with the first; the results were discarded", 2
    ),
    FalseAlarm(
        "The first 60 accepted mutations on 2026-11-29: the GPU time of a status, a ReplicaSet's former numbers and pods without a GPU of "
        "the one node were compared, and names of revisions, by which the files of a model differ, were not; the results were discarded",
        53,
    ),
)
