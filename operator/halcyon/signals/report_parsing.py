"""Parsing and validation of a report in steps of a few pods, between which other tasks can run.

A report has up to 2,048 pods. Pods that don't belong to the sender's model are skipped before they are parsed, so the
CPU time and memory for a report are bounded by the number of existing pods. Out of scope: the limits per stream and
model (`collector`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace

import orjson

from halcyon.api.documents import codec
from halcyon.api.documents.observation_report import (
    REPORT_VERSION,
    AgentReport,
    PodSample,
    ReportError,
    report_errors,
)
from halcyon.signals.agents import Sender
from halcyon.signals.observation_store import STEP_PODS
from halcyon.signals.validation import ValidatedReport, validate_head, validate_pod


class ForeignReport(Exception):  # noqa: N818  # an answer, not a fault
    """Error raised if a report is about another model than the sender's, or names another agent as its sender."""


def parse_in_steps(
    text: object, sender: Sender, exists: Callable[[str], bool]
) -> Generator[None, None, ValidatedReport]:
    """Parse and validate a message from an agent.

    `exists` returns whether the model has a pod with this name.

    Raises:
        ForeignReport: the sender may not send this report.
        ReportError: the message is not a report.
    """
    if not isinstance(text, str):
        raise ReportError("not a report: binary")
    with report_errors():
        raw = codec.checked(orjson.loads(text), REPORT_VERSION)
        pods = list(raw.pop("pods"))
        head = validate_head(AgentReport.of_fields(raw), len(pods))
    yield
    report = head.report
    if (author := Sender(report.namespace, report.name, report.agent)) != sender:
        raise ForeignReport(f"the token is for {'/'.join(sender)}, the report for {'/'.join(author)}")
    samples, implausible = [], head.implausible
    for number, fields in enumerate(pods, 1):
        with report_errors():
            if exists(fields["name"]):
                sample, dropped = validate_pod(PodSample.of_fields(fields), report)
                samples.append(sample)
                implausible += dropped
        if number % STEP_PODS == 0:
            yield
    return ValidatedReport(replace(report, pods=tuple(samples)), implausible)
