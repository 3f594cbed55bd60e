"""JSON form of points and of requests for them, for the transfer between a command and a trial pod. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from halcyon_tune.points import Callers, Configuration, Load, Point, Rate

Json = Mapping[str, Any]


def request(configuration: Configuration, load: Load, *, threads_parameter: str) -> dict[str, Any]:
    """Return the JSON form of a request to measure a point."""
    return {
        "configuration": asdict(configuration),
        "load": _load(load),
        "threads_parameter": threads_parameter,
    }


def parsed_request(document: Json) -> tuple[Configuration, Load, str]:
    """Parse the output of `request` into the configuration, the load, and the key of the parameter for threads.

    Raises:
        ValueError, KeyError, TypeError: the document isn't a request.
    """
    return (
        _parsed_configuration(document["configuration"]),
        _parsed_load(document["load"]),
        str(document["threads_parameter"]),
    )


def point(measured: Point) -> dict[str, Any]:
    """Return the JSON form of a point."""
    return asdict(measured) | {"load": _load(measured.load), "batches": [[*key] for key in _batches(measured)]}


def parsed_point(document: Json) -> Point:
    """Parse the output of `point`.

    Raises:
        ValueError, KeyError, TypeError: the document isn't a point.
    """
    return Point(**{
        **document,
        "configuration": _parsed_configuration(document["configuration"]),
        "load": _parsed_load(document["load"]),
        "batches": {rows: (executions, seconds) for rows, executions, seconds in document["batches"]},
    })  # fmt: skip


def _batches(measured: Point) -> list[tuple[int, int, float]]:
    return [(rows, executions, seconds) for rows, (executions, seconds) in sorted(measured.batches.items())]


def _load(load: Load) -> dict[str, Any]:
    return {"kind": "callers" if isinstance(load, Callers) else "rate"} | asdict(load)


def _parsed_load(document: Json) -> Load:
    fields = {key: value for key, value in document.items() if key != "kind"}
    return Callers(**fields) if document["kind"] == "callers" else Rate(**fields)


def _parsed_configuration(document: Json) -> Configuration:
    return Configuration(**{**document, "preferred": tuple(document["preferred"])})
