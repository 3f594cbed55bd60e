"""Short labels of runs, made of the settings in which the runs differ. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from halcyon_measure.results.document import BenchDocument, MeasuredScenario
from halcyon_measure.results.document_file import StoredDocument
from halcyon_measure.results.number_text import count_text, number
from halcyon_measure.results.sections.sweep import request_form

_OF_SERVER = ("model", "url", "kind", "replicas", "revision")
"""Settings that separate runs into lines in charts over the load."""


@dataclass(frozen=True)
class LabelledRun:
    """Document of a run, with a label that is unique on the page."""

    label: str
    document: BenchDocument
    name: str
    """Name of the file that contains the document."""
    server: str
    """Settings of the server and kind of load in which the runs differ, with this run's values; empty if there are
    none."""


def labelled(documents: Sequence[StoredDocument]) -> tuple[LabelledRun, ...]:
    """Return the runs with labels, which consist of the settings that differ, or of the model if none differ."""
    settings = [_settings(stored.document) for stored in documents]
    differing = [name for name in settings[0] if len({values[name] for values in settings}) > 1] if settings else []
    bases = [", ".join(filter(None, (values[name] for name in differing))) or values["model"] for values in settings]
    servers = [
        ", ".join(filter(None, (values[name] for name in differing if name in _OF_SERVER))) for values in settings
    ]
    counts, seen = Counter(bases), Counter[str]()
    runs: list[LabelledRun] = []
    for base, stored in zip(bases, documents, strict=True):
        seen[base] += 1
        label = base if counts[base] == 1 else f"{base} ({seen[base]})"
        runs.append(LabelledRun(label, stored.document, stored.name, servers[len(runs)]))
    return tuple(runs)


def best(runs: Sequence[LabelledRun]) -> list[LabelledRun]:
    """Return the runs sorted by goodput if all have one, otherwise by throughput, highest first."""
    has_goodput = all(run.document.goodput.value is not None for run in runs)

    def rate(run: LabelledRun) -> float:
        figure = run.document.goodput if has_goodput else run.document.throughput
        return figure.value or 0.0

    return sorted(runs, key=rate, reverse=True)


def _settings(document: BenchDocument) -> dict[str, str]:
    target, scenario, place = document.target, document.scenario, document.place
    return {
        "model": target.model or target.url,
        "url": target.url.rpartition("://")[2] if place is None or place.kind == "url" else "",
        "protocol": request_form(target.protocol, target.encoding, target.shared_memory),
        "rows": f"{target.rows} rows" if target.rows != "1" else "1 row",
        "kind": scenario.preset or scenario.kind,
        "rate": rate_text(scenario),
        "callers": callers_text(scenario),
        "replicas": "" if place is None or place.replicas is None else count_text(place.replicas, "replica"),
        "revision": "" if place is None else place.revision or "",
    }


def load_text(scenario: MeasuredScenario) -> str:
    """Return a phrase that describes the load, for example `sustained, 100/s`."""
    return ", ".join(filter(None, (scenario.preset or scenario.kind, rate_text(scenario), callers_text(scenario))))


def rate_text(scenario: MeasuredScenario) -> str:
    """Return a phrase with the rate of the load; empty if the scenario has none."""
    if scenario.rate_rps is None:
        return ""
    end = f" to {number(scenario.to_rps)}/s" if scenario.to_rps is not None else ""
    return f"{number(scenario.rate_rps)}/s{end}"


def callers_text(scenario: MeasuredScenario) -> str:
    """Return a phrase with the number of callers; empty if the scenario has none."""
    if scenario.callers is None:
        return ""
    return count_text(scenario.callers, "caller")
