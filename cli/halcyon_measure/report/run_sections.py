"""Report sections about the runs themselves: settings, environment, and the data. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from halcyon_measure.report.html_document import data_section
from halcyon_measure.report.labels import LabelledRun, load_text
from halcyon_measure.report.markup import Content, Html, element, facts, section, table
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.document_file import StoredDocument
from halcyon_measure.results.number_text import NONE, number
from halcyon_measure.results.place import ContainerLimits


def run_settings(runs: Sequence[LabelledRun]) -> Html:
    """Return the section with the settings, image, revision, node, limits and seed of the runs.

    Values that all runs share are shown once.
    """
    files = len({run.name for run in runs}) > 1
    settings = [({"File": run.name} if files else {}) | _settings(run.document) for run in runs]
    same = {name: value for name, value in settings[0].items() if all(values.get(name) == value for values in settings)}
    contents: list[Content] = [facts(list(same.items()))]
    names = [name for name in dict.fromkeys(name for values in settings for name in values) if name not in same]
    if names:
        rows = [
            [run.label, *(values.get(name) or NONE for name in names)]
            for run, values in zip(runs, settings, strict=True)
        ]
        contents.append(table(["run", *names], rows, label="Settings in which the runs differ"))
    contents.append(
        element(
            "p", "To measure the same again: ", element("code", "halcyon bench --again bench.json"), ".", class_="quiet"
        )
    )
    return section("What was run", contents, anchor="run")


def _settings(document: BenchDocument) -> dict[str, str]:
    target, scenario, run, place = document.target, document.scenario, document.run, document.place
    inputs = ", ".join(f"{tensor.name} {tensor.datatype} {list(tensor.shape)}" for tensor in target.inputs)
    settled = {None: "fixed", True: "until the load settled", False: "the load didn't settle"}[run.settled]
    values = {
        "Model": target.model,
        "Version": target.version,
        "Server": target.url,
        "API": f"{target.api}, {target.protocol}, {target.encoding}",
        "Shared memory": target.shared_memory if target.shared_memory != "none" else "",
        "Inputs": inputs,
        "Rows of a request": target.rows,
        "Load": load_text(scenario),
        "Think time": f"{number(scenario.think_s)} s" if scenario.think_s else "",
        "Coefficient of variation": number(scenario.cv) if scenario.cv is not None else "",
        "Busy and idle phases": f"{number(scenario.on_s)} s, {number(scenario.off_s)} s"
        if scenario.on_s is not None
        else "",
        "Requests of the trace": number(scenario.trace_requests) if scenario.trace_requests else "",
        "Largest number of requests": number(scenario.requests) if scenario.requests is not None else "",
        "Measured": f"{number(run.measured_s)} s of {number(scenario.duration_s)} s"
        + (", requests counted in a histogram: percentiles within 0.2 %" if run.histogram else ""),
        "Warm-up": f"{number(run.warm_up_s)} s, {settled}",
        "Seed": str(scenario.seed),
        "Made": f"{document.made_at}, {document.made_by}",
    }
    if place is not None:
        values |= {
            "Place": {"url": "any server", "copy": "a copy", "trial": "a trial pod", "live": "the served model"}[
                place.kind
            ],
            "ModelDeployment": "/".join(filter(None, (place.namespace, place.name))),
            "Measured object": place.measured or "",
            "Revision": place.revision or "",
            "Source of the model": place.source or "",
            "Image": place.image_id or place.image or "",
            "Node": place.node or "",
            "GPU": place.gpu_product or "",
            "Limits of the server": _limits(place.limits),
            "Routing": place.routing or "",
            "Replicas": "" if place.replicas is None else str(place.replicas),
            "Node of the client": place.client_node or "",
            "Limits of the client": _limits(place.client_limits),
            "Ended early": place.ended or "",
            "Arguments": shlex.join(place.arguments),
        }
    return {name: value for name, value in values.items() if value}


def _limits(limits: ContainerLimits | None) -> str:
    if limits is None:
        return ""
    return ", ".join(f"{name} {value}" for name, value in limits if value)


def data(documents: Sequence[StoredDocument]) -> Html:
    """Return the section that contains the documents as JSON."""
    names = ", ".join(stored.name for stored in documents[:12]) + (
        f" and {len(documents) - 12} more" if len(documents) > 12 else ""
    )
    return data_section(
        [(stored.name, stored.data) for stored in documents],
        element("p", f"This page contains the whole results: {names}."),
        element("p", "Without a browser: ", element("code", "halcyon report report.html --json"), ".", class_="quiet"),
    )
