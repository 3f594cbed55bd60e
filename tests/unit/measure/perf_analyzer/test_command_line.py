"""The command line of perf_analyzer: the same load, target and headers, or an error that names what it lacks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from halcyon_measure.engine.hooks import HookSettings
from halcyon_measure.engine.job import PayloadSettings
from halcyon_measure.errors import ScenarioError, SettingError
from halcyon_measure.inputs.payloads import Rows
from halcyon_measure.measurement import Measurement
from halcyon_measure.perf_analyzer import command_line
from halcyon_measure.perf_analyzer.command_line import CommandLine
from halcyon_measure.protocols.target import Target, Tls, parse
from halcyon_measure.schedule.scenario import Scenario


def target(url: str = "http://m:8000", encoding: Any = None, **others: Any) -> Target:
    return parse(url, api="kserve", transport=None, encoding=encoding, model="m", **others)


def built(scenario: Scenario, *options: str, to: Target | None = None, rows: int = 1) -> CommandLine:
    return command_line.build(to or target(), scenario, options, rows=rows, measured_s=9.0)


def values(command: CommandLine, option: str) -> list[str]:
    return [value for name, value in zip(command.arguments, command.arguments[1:], strict=False) if name == option]


def test_callers_are_measured_in_three_windows_of_the_same_length() -> None:
    command = built(Scenario(callers=4), rows=2)
    assert values(command, "--concurrency-range") == ["4"]
    assert values(command, "--measurement-interval") == ["3000"]
    assert values(command, "--max-trials") == ["3"]
    assert values(command, "-b") == ["2"]
    assert command.load == "4 concurrent requests, 3 windows of 3 s"
    assert command.has_windows
    assert not command.has_schedule


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(kind="sustained", rate_rps=50, duration_s=2),
        Scenario(kind="burst", rate_rps=50, cv=2, duration_s=2),
        Scenario(kind="ramp", rate_rps=10, to_rps=90, duration_s=2),
        Scenario(kind="trace", trace=(0.0, 0.0, 0.5, 1.25)),
    ],
    ids=lambda scenario: scenario.kind,
)
def test_schedule_is_repeated_with_the_same_arrivals(scenario: Scenario) -> None:
    from halcyon_measure.schedule import arrivals  # noqa: PLC0415

    due = [float(at) for chunk in arrivals.chunks(scenario) for at in chunk]
    command = built(scenario)
    times = [sum(command.gaps_us[: n + 1]) / 1e6 for n in range(len(command.gaps_us))]
    # perf_analyzer takes no gap of 0, so equal times are 1 us apart.
    assert times == pytest.approx(due, abs=1e-5)
    assert values(command, "--request-count") == [str(len(due))]
    assert values(command, "--request-intervals") == [command_line.GAPS]
    assert "--async" in command.arguments


def test_option_for_stability_replaces_the_fixed_windows() -> None:
    command = built(Scenario(kind="sustained", rate_rps=50), "stability-percentage=5", "max-trials=7")
    assert values(command, "--stability-percentage") == ["5"]
    assert values(command, "--max-trials") == ["7"]
    assert values(command, "--request-count") == []
    assert "until 3 of them are stable" in command.load
    assert command.limit_s > 7 * 3


def test_headers_have_no_space_and_are_not_recorded() -> None:
    to = target(headers=(("authorization", "Bearer secret"), ("x-team", "vision")))
    command = built(Scenario(), to=to)
    assert values(command, "-H") == ["authorization:Bearer secret", "x-team:vision"]
    assert "secret" not in " ".join(command.recorded)
    assert [text for text in command.recorded if text.endswith("REDACTED")] == [
        "authorization:REDACTED",
        "x-team:REDACTED",
    ]


@pytest.mark.parametrize(("url", "prefix"), [("https://m:8443", "--ssl-https-"), ("grpcs://m:8443", "--ssl-grpc-")])
def test_tls_files_have_the_options_of_the_protocol(tmp_path: Path, url: str, prefix: str) -> None:
    files = [tmp_path / name for name in ("ca.crt", "client.crt", "client.key")]
    ca, certificate, key = map(str, files)
    command = built(Scenario(), to=target(url, tls=Tls(ca=ca, certificate=certificate, key=key)))
    paths = dict(zip(command.arguments, command.arguments[1:], strict=False))
    over_grpc = "grpc" in prefix
    assert paths[f"{prefix}{'root-certifications-file' if over_grpc else 'ca-certificates-file'}"] == ca
    assert paths[f"{prefix}{'certificate-chain-file' if over_grpc else 'client-certificate-file'}"] == certificate
    assert paths[f"{prefix}private-key-file"] == key
    assert paths["-u"] == ("m:8443" if over_grpc else "https://m:8443")
    assert ("--ssl-grpc-use-ssl" in command.arguments) == over_grpc


def test_tensors_as_json_are_sent_and_received_as_json() -> None:
    command = built(Scenario(), to=target(encoding="json"))
    assert {"--input-tensor-format=json", "--output-tensor-format=json"} <= set(command.arguments)


MEASUREMENT = Measurement(target=target(), scenario=Scenario())


@pytest.mark.parametrize(
    ("measurement", "feature"),
    [
        (replace(MEASUREMENT, scenario=Scenario(think_s=1)), "--think"),
        (replace(MEASUREMENT, payload=PayloadSettings(rows=Rows(1, 8))), "1..8"),
        (replace(MEASUREMENT, hooks=HookSettings(prepare="x.py:f")), "--prepare"),
        (replace(MEASUREMENT, target=target("grpc://m:1", "typed")), "typed"),
        (replace(MEASUREMENT, target=target(shared_memory="system")), "--shared-memory system"),
        (replace(MEASUREMENT, target=target("http://m:1/prefix")), "/prefix"),
    ],
    ids=["think", "rows", "hook", "typed", "memory", "path"],
)
def test_feature_that_perf_analyzer_lacks_is_an_error(measurement: Measurement, feature: str) -> None:
    with pytest.raises(ScenarioError, match="perf_analyzer has no equivalent") as error:
        command_line.check(measurement, ())
    assert feature in str(error.value)


@pytest.mark.parametrize("option", ["url=x", "streaming=1", "max-trials", "streaming"])
def test_option_that_cannot_be_passed_is_an_error(option: str) -> None:
    with pytest.raises(SettingError, match=f"--perf-analyzer-option {option}"):
        command_line.check(MEASUREMENT, [option])


def test_schedule_with_too_many_arrivals_is_an_error() -> None:
    with pytest.raises(ScenarioError, match="more than 1000000 arrivals"):
        built(Scenario(kind="sustained", rate_rps=20_000, duration_s=60))
