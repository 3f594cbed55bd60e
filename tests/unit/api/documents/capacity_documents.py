"""Documents NAME-capacity: one that is right, and each kind that is refused."""

from __future__ import annotations

import json
from typing import Any

from halcyon.api.documents.measured_capacity import KEY, MAX_BYTES, Served

SERVED = Served("digits-5d7c", "localhost/tritonserver:24.10", "NVIDIA-H200", 1)
LINE = {"instances": 1, "constantMilliseconds": 80, "perRowMilliseconds": 6, "maxBatchSize": 8}
DOCUMENT: dict[str, Any] = {
    "version": 1,
    "source": "bench",
    "measuredAt": "2026-11-28T03:15:00Z",
    "revision": SERVED.revision,
    "image": SERVED.image,
    "gpuProduct": SERVED.gpu_product,
    "lines": [LINE],
}


def config_map(**changes: Any) -> dict[str, Any]:
    return {"data": {KEY: json.dumps({**DOCUMENT, **changes})}}


def line(**changes: Any) -> dict[str, Any]:
    return config_map(lines=[{**LINE, **changes}])


UNREADABLE = {
    "no key": ({"data": {"other": "{}"}}, "it has no key capacity.json"),
    "no data": ({}, "it has no key capacity.json"),
    "not JSON": ({"data": {KEY: "{"}}, "capacity.json: Invalid JSON"),
    "a list": ({"data": {KEY: "[1]"}}, "capacity.json: Input should be an object"),
    "another version": (config_map(version=2, more=1), "version is '2': Input should be 1"),
    "above 4 KiB": (config_map(image="i" * MAX_BYTES), "the limit is 4096"),
    "negative": (line(constantMilliseconds=-80), "lines.0.constantMilliseconds is '-80'"),
    "infinite": (line(perRowMilliseconds=float("inf")), "lines.0.perRowMilliseconds is 'inf'"),
    "not a number": (line(perRowMilliseconds=float("nan")), "lines.0.perRowMilliseconds is 'nan'"),
    "no time at all": (line(constantMilliseconds=0, perRowMilliseconds=0), "less than 0.001 ms"),
    "days for a batch": (line(constantMilliseconds=1e9), "lines.0.constantMilliseconds is '1000000000"),
    "no instance": (line(instances=0), "lines.0.instances is '0'"),
    "an unknown field": (config_map(replicas=7), "replicas is '7'"),
    "no lines": (config_map(lines=[]), "lines is '[]'"),
    "two lines of a kind": (config_map(lines=[LINE, LINE]), "two entries for 1 instances"),
    "no image": (
        {"data": {KEY: json.dumps({**DOCUMENT, "image": None} | {"lines": [{"instances": 1}]})}},
        "image is 'None'",
    ),
    "a missing field": ({"data": {KEY: json.dumps({"version": 1, **LINE})}}, "source: Field required"),
    "no time of measurement": (config_map(measuredAt="yesterday"), "measuredAt is 'yesterday'"),
}
