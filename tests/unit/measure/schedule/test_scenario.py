"""Scenarios that can't be run are refused with the field, its value, the limit and an example."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from halcyon_measure.errors import ScenarioError
from halcyon_measure.schedule import trace_file
from halcyon_measure.schedule.scenario import KINDS, PRESETS, Scenario


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "sustained", "rate_rps": 20_001}, "rate is 20001 requests/s; it must be above 0 and at most 20000"),
        ({"kind": "sustained", "rate_rps": float("nan")}, "rate is nan"),
        ({"kind": "sustained"}, "needs a rate in requests/s; for example --rate 200"),
        ({"kind": "ramp", "rate_rps": 1}, "needs the rate at its end"),
        ({"kind": "burst", "rate_rps": 1}, "either a coefficient of variation or phases"),
        ({"kind": "burst", "rate_rps": 1, "cv": 2, "on_s": 1, "off_s": 1}, "either a coefficient"),
        ({"kind": "burst", "rate_rps": 1, "on_s": 1}, "both times of its phases"),
        ({"kind": "burst", "rate_rps": 1, "cv": 11}, "cv is 11; it must be above 0 and at most 10"),
        ({"kind": "blocking", "callers": 4097}, "callers is 4097; it must be above 0 and at most 4096, for example 32"),
        ({"kind": "blocking", "rate_rps": 5}, "rate has no effect in scenario blocking; it belongs to sustained and"),
        ({"kind": "sustained", "rate_rps": 1, "think_s": 1}, "think has no effect in scenario sustained"),
        ({"kind": "blocking", "duration_s": 3601}, "duration is 3601 s; it must be above 0 and at most 3600 s"),
        ({"kind": "trace"}, "scenario trace needs due times"),
        ({"kind": "trace", "trace": (0.0, 0.0)}, "scenario trace needs a due time above 0"),
        ({"seed": -1}, "seed is -1; it must be 0 or more, for example 1"),
        ({"kind": "wave"}, "scenario is wave; there are blocking, sustained, burst, ramp, trace, offline"),
    ],
)
def test_a_scenario_that_cannot_be_run_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        Scenario(**fields).check()
    assert message in str(caught.value)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_can_be_run(name: str) -> None:
    scenario = Scenario(**{"rate_rps": 10 if name == "server" else None, **PRESETS[name][1]})
    assert Scenario.from_dict(scenario.check().to_dict()) == scenario


@pytest.mark.parametrize("kind", KINDS)
def test_every_scenario_has_an_endless_warm_up(kind: Any) -> None:
    more: dict[str, Any] = {
        "sustained": {"rate_rps": 5},
        "burst": {"rate_rps": 5, "cv": 3},
        "ramp": {"rate_rps": 5, "to_rps": 50},
        "trace": {"trace": (0.0, 1.0)},
        "offline": {"requests": 10},
    }.get(kind, {})
    warm = Scenario(kind=kind, **more).check().warm_up().check()
    assert (warm.requests, warm.duration_s) == (None, 3600)


def trace(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    return path


def test_a_trace_begins_at_its_first_arrival(tmp_path: Path) -> None:
    assert trace_file.read(trace(tmp_path, "id,t_s\na,10\nb,10.5\nc,14\n"), scale=2) == (0.0, 0.25, 2.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("t_s\n1\n0.5\n", "line 3: 0.5 comes after 1; sort the file by t_s"),
        ("t_s\n1\nnan\n", "line 3: t_s is 'nan'; it must be a time in seconds, for example 0.25"),
        ("t_s\n1\n\n2;3\n", "t_s is '2;3'"),
        ("t_s\n0\n3601\n", "3601 s long at scale 1; at most 3600 s are possible, for example --scale 2"),
        ("time\n0\n", "no column t_s in ['time']"),
        ("t_s\n", "no arrival"),
        ("t_s\n" + 200_000 * "1", "line 1: not CSV: field larger than field limit"),
        ("t_s\n7\n", "all 1 arrivals are at 7 s, so there is no rate; for example --scenario offline --requests 1"),
        ("t_s\n7\n7\n7\n", "all 3 arrivals are at 7 s"),
        ("", "no column t_s"),
    ],
)
def test_a_trace_that_cannot_be_played_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        trace_file.read(trace(tmp_path, text))
    assert message in str(caught.value)


def test_a_trace_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    for content in (b"t_s\n1\n", gzip.compress(b"t_s\n1\n")[:10] + b"\xff" * 20):
        path.write_bytes(content)
        with pytest.raises(ScenarioError, match="unreadable as CSV"):
            trace_file.read(path)
