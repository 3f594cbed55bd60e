"""The JSON form of points, there and back."""

from __future__ import annotations

import json
import math

import pytest

from halcyon_cli.bench.trial import point_json
from halcyon_tune.points import Callers, Configuration, Load, Point, Rate

SETTINGS = Configuration(instances=2, max_batch=16, delay_s=0.002, preferred=(4, 16), threads=3)


@pytest.mark.parametrize("load", [Callers(callers=8), Rate(rate_rps=12.5, min_requests=100)])
def test_requests_for_points_are_read_as_they_were_sent(load: Load) -> None:
    document = json.loads(json.dumps(point_json.request(SETTINGS, load, threads_parameter="threads")))
    assert point_json.parsed_request(document) == (SETTINGS, load, "threads")


def test_points_are_read_as_they_were_measured() -> None:
    measured = Point(
        configuration=SETTINGS,
        load=Rate(rate_rps=3),
        seconds=4.0,
        throughput_rps=2.9,
        p99_s=math.inf,
        requests=12,
        batches={1: (3, 0.03), 8: (4, 0.2)},
        memory_bytes=1 << 30,
    )
    failed = Point(configuration=SETTINGS, load=Callers(callers=1), seconds=1.0, failure="Memory", why="out of memory")
    for point in (measured, failed):
        assert point_json.parsed_point(json.loads(json.dumps(point_json.point(point)))) == point
