"""`halcyon bench`: the scenario that its options mean, and combinations that are refused before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from halcyon.main import main
from halcyon_cli.bench.options import inputs, server
from halcyon_cli.bench.options.load import LoadOptions
from halcyon_cli.errors import InputError


@pytest.mark.parametrize(
    ("options", "kind", "fields"),
    [
        ({}, "blocking", {"callers": 1, "duration_s": 10}),
        ({"callers": 32, "think": 0.1}, "blocking", {"callers": 32, "think_s": 0.1}),
        ({"rate": 200.0}, "sustained", {"rate_rps": 200}),
        ({"rate": 200.0, "cv": 3.0}, "burst", {"cv": 3}),
        ({"rate": 200.0, "on_s": 5.0, "off_s": 20.0}, "burst", {"on_s": 5, "off_s": 20}),
        ({"rate": 10.0, "to_rps": 200.0}, "ramp", {"to_rps": 200}),
        ({"scenario": "offline", "requests": 100}, "offline", {"callers": 256, "duration_s": 600}),
    ],
)
def test_a_scenario_follows_from_the_options(options: dict[str, Any], kind: str, fields: dict[str, Any]) -> None:
    scenario = LoadOptions(**options).build_scenario()
    assert scenario.kind == kind
    assert {name: getattr(scenario, name) for name in fields} == fields


def test_a_preset_is_a_scenario_whose_fields_can_be_changed() -> None:
    scenario = LoadOptions(preset="server", rate=50.0, duration=5.0).build_scenario()
    assert (scenario.kind, scenario.rate_rps, scenario.duration_s) == ("sustained", 50, 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "it needs a ModelDeployment or a server"),
        (["--url", "localhost:8000"], "--model is needed with this API; for example --model digits"),
        (["--url", "ftp://localhost", "--model", "m"], "must be a URL of HTTP or gRPC"),
        (["--url", "localhost:99999", "--model", "m"], "its port must be 1 to 65535"),
        (["--url", "localhost", "--model", "m", "--encoding", "raw"], "with api kserve over http it is binary or json"),
        (["--url", "grpc://localhost", "--model", "m", "--api", "tfserving"], "api tfserving has no form over grpc; use http"),
        (["--url", "localhost", "--model", "m", "--rows", "9..1"], "rows is 9..1; it must be 1 to 4096 or a range"),
        (["--url", "localhost", "--model", "m", "--shape", "x"], "must be INPUT=SIZES with sizes of 1 or more, for example --shape image=3,224,224"),
        (["--url", "localhost", "--model", "m", "--header", "x"], "must be NAME:VALUE"),
        (["--url", "localhost", "--model", "m", "--header", "x y:1"], "the name must have no spaces"),
        (["--url", "localhost", "--model", "m", "--header", "x:1\ny:2"], "the value only printable ASCII characters"),
        (["--url", "localhost", "--model", "m", "--metrics-url", "http://[::1"], "isn't a URL of metrics"),
        (["--url", "localhost", "--model", "m", "--prometheus", "http://p:x"], "must be a URL of HTTP"),
        (["--url", "localhost", "--model", "m", "--rate", "5", "--think", "1s"], "think has no effect in scenario sustained"),
        (["--url", "localhost", "--model", "m", "--preset", "server"], "scenario sustained needs a rate"),
        (["--url", "localhost", "--model", "m", "--preset", "server", "--scenario", "ramp"], "preset server is scenario sustained"),
        (["--url", "localhost", "--model", "m", "--warm-up", "soon"], "--warm-up: "),
        (["--url", "localhost", "--model", "m", "--decode", "--prepare", "a.py:b"], "both prepare a request"),
        (["--url", "localhost", "--model", "m", "--decode", "--rows", "8"], "--rows has no effect with --decode"),
        (["--url", "localhost", "--model", "m", "--against-model", "n"], "--against-model n is of a comparison"),
        (["--url", "localhost", "--model", "m", "--prepare", "a.py"], "isn't FILE.py:FUNCTION; for example hook.py:prepare"),
        (["--url", "localhost", "--model", "m", "--cert", "a.crt"], "needs both files"),
        (["--url", "localhost", "--model", "m", "--input", "none.npy"], "none.npy: no such file or folder"),
        (["--url", "localhost/predict", "--api", "post"], "api post needs the body of its requests"),
        (["--url", "localhost", "--model", "m", "--processes", "65"], "processes is 65; it must be 1 to 64, for example 2"),
        (["--url", "localhost", "--model", "m", "--shape", "x=3,0"], "must be INPUT=SIZES with sizes of 1 or more"),
        (["--url", "localhost", "--model", "m", "--timeout", "2s"], "for requests of the load, give --request-timeout 2s"),
        (["--url", "localhost", "--model", "m", "--replicas", "2"], "--replicas is for a ModelDeployment, and --url names a server"),
        (["--url", "localhost", "--model", "m", "--trial"], "--trial is for a ModelDeployment, and --url names a server"),
        (["--url", "localhost", "--model", "m", "-n", "team"], "--namespace is for a ModelDeployment, and --url names a server"),
        (["digits", "--wait", "5m"], "--wait is for --url; for digits, give --start-timeout 300s"),
        (["--url", "localhost", "--model", "m", "--scenario", "offline"], "scenario offline needs a number of requests"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_folder_is_a_sample_for_each_of_its_files(tmp_path: Path) -> None:
    for name in ("b.npy", "a.npy", ".hidden"):
        (tmp_path / name).touch()
    assert inputs.samples([f"x={tmp_path}"]) == ((("x", f"{tmp_path}/a.npy"),), (("x", f"{tmp_path}/b.npy"),))


def test_an_api_key_is_sent_as_a_bearer_token(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k-1\n")
    assert server.request_headers(["x-team: vision"], key) == (("x-team", "vision"), ("Authorization", "Bearer k-1"))


def test_the_first_key_of_a_mounted_secret_is_sent(tmp_path: Path) -> None:
    # As the kubelet mounts a Secret: files are links into a hidden folder.
    (tmp_path / "..2026").mkdir()
    for name in ("team-b", "team-a"):
        (tmp_path / "..2026" / name).write_text(f"the-key-of-{name}")
        (tmp_path / name).symlink_to(tmp_path / "..2026" / name)
    assert server.request_headers([], tmp_path) == (("Authorization", "Bearer the-key-of-team-a"),)
    empty = tmp_path / "..2026" / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match="none of the 0 files has a valid API key"):
        server.request_headers([], empty)
