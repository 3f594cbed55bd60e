import os
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import orjson
import pytest

from halcyon.main import main as halcyon
from halcyon_simulator.command.main import main

_FAST = ["--scenario", "S6-aibrix", "--policy", "hpa"]
_SVG = "{http://www.w3.org/2000/svg}"
_KEYS = {
    "scenario", "policy", "params", "seed", "requests", "violations_pct", "refused_pct", "p50_ms", "p95_ms", "p99_ms",
    "gpu_seconds", "gpu_ratio_work", "gpu_ratio_clairvoyant", "direction_changes_per_h", "overshoot", "settling_s",
    "pods_in_vain", "reactive_floor_pct",
}  # fmt: skip


def _json(capsysbinary: pytest.CaptureFixture[bytes], *arguments: str) -> Any:
    assert main([*arguments, "--json"]) == 0
    return orjson.loads(capsysbinary.readouterr().out)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "load.csv"
    path.write_text("t_s\n" + "".join(f"{number * 0.05:.2f}\n" for number in range(4000)))
    return str(path)


def test_the_json_has_every_figure_of_every_run(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    document = _json(capsysbinary, *_FAST, "--policy", "kpa:target=8", "--seeds", "2", "--start-delay", "20")
    assert [(run["policy"], run["seed"]) for run in document["runs"]] == [
        ("hpa", 1),
        ("kpa", 1),
        ("hpa", 2),
        ("kpa", 2),
    ]
    assert all(set(run) == _KEYS for run in document["runs"])
    assert document["runs"][1]["params"] == {"target": "8"}
    assert document["start_delay_s"] == 20
    assert (document["service"]["t0_ms"], document["slo_ms"]) == (400, 2400)


def test_the_same_seed_gives_the_same_result(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert _json(capsysbinary, *_FAST) == _json(capsysbinary, *_FAST)


def test_the_planners_runs_are_identical_for_a_seed_and_differ_between_seeds() -> None:
    command = [
        sys.executable,
        "-m",
        "halcyon_simulator.command.main",
        *_FAST[:2],
        "--policy",
        "halcyon",
        "--seeds",
        "2",
    ]
    # Processes of their own, whose sets have other orders.
    environments = ({**os.environ, "PYTHONHASHSEED": order} for order in ("1", "2"))
    first_output, second_output = (
        subprocess.run([*command, "--json"], env=environment, check=True, capture_output=True).stdout
        for environment in environments
    )
    assert first_output == second_output
    first, second = orjson.loads(first_output)["runs"]
    assert (first["seed"], second["seed"]) == (1, 2)
    assert first["gpu_seconds"] != second["gpu_seconds"]
    assert first["p99_ms"] != second["p99_ms"]


def test_a_trace_is_superposed_and_limits_reach_the_run(trace: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    law = ["--service", "t0_ms=400,a_ms=0,max_batch=4,instances=1", "--slo-ms", "2400"]
    options = ["--trace", trace, "--superpose", "3", *law, "--policy", "hpa", "--min", "2", "--max", "3"]
    (run,) = _json(capsysbinary, *options, "--queue-limit", "5", "--observation-lag", "15")["runs"]
    assert (run["scenario"], run["requests"]) == ("load.csv", 12000)
    assert run["refused_pct"] > 0
    (unlimited,) = _json(capsysbinary, *options)["runs"]
    assert unlimited["refused_pct"] == 0


@pytest.mark.parametrize(
    ("option", "less", "more", "figure"),
    [
        # Three replicas serve less in time than four, and cost less; the least costs where nothing comes any more.
        ("--max", "3", "30", "gpu_seconds"),
        ("--min", "1", "25", "gpu_seconds"),
        # What is seen a minute late is answered a minute late.
        ("--observation-lag", "0", "60", "violations_pct"),
        ("--start-delay", "5", "120", "violations_pct"),
        ("--queue-limit", "5", "5000", "p99_ms"),
    ],
)
def test_each_limit_and_delay_has_its_effect(
    option: str, less: str, more: str, figure: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    options = ["--scenario", "S1", "--policy", "kpa", "--max", "30", "--min", "1"]
    low, high = (_json(capsysbinary, *options, option, value)["runs"][0][figure] for value in (less, more))
    assert low < high


def test_the_table_has_a_row_per_policy(capsys: pytest.CaptureFixture[str]) -> None:
    assert halcyon(["simulate", *_FAST, "--policy", "static:n=12"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["scenario", "policy", "violations"]
    assert [line.split()[:2] for line in lines[1:]] == [["S6-aibrix", "hpa"], ["S6-aibrix", "static:n=12"]]


def test_a_sweep_marks_the_front(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "front.svg"
    assert main(["--scenario", "S6-aibrix", "--policy", "static", "--sweep", "--plot", str(picture)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("front")
    assert len(lines) > 3
    assert any(line.endswith("*") for line in lines)
    assert "<svg" in picture.read_text()


@dataclass(frozen=True)
class _Field:
    """What one field of an SVG shows."""

    texts: set[str]
    lines: list[list[float]]
    """Heights of each line's points, as shares of the field's."""
    points: int


def _fields(picture: Path) -> list[_Field]:
    fields = []
    for axes in ET.parse(picture).iterfind(f".//{_SVG}g"):
        if not axes.get("id", "").startswith("axes_"):
            continue
        parts = [(part.get("id", "").rstrip("0123456789"), part) for part in axes]
        edges = _ys(next(part for name, part in parts if name == "patch_"))
        low, high = max(edges), min(edges)
        lines = [[(low - y) / (low - high) for y in _ys(part)] for name, part in parts if name == "line2d_"]
        points = sum(len(part.findall(f".//{_SVG}use")) for name, part in parts if name == "PathCollection_")
        fields.append(_Field({text.text or "" for text in axes.iterfind(f".//{_SVG}text")}, lines, points))
    return fields


def _ys(group: ET.Element) -> list[float]:
    path = group.find(f"{_SVG}path")
    assert path is not None
    return [float(y) for y in re.findall(r"[ML] \S+ (\S+)", path.get("d", ""))]


def test_the_front_of_a_sweep_is_what_no_other_point_betters(
    capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    swept = ["--scenario", "S6-aibrix", "--policy", "kpa", "--seeds", "2", "--max", "20", "--sweep"]
    picture = tmp_path / "front.svg"
    document = _json(capsysbinary, *swept, "--plot", str(picture))
    figures = defaultdict(list)
    for run in document["runs"]:
        knobs = ",".join(f"{key}={value}" for key, value in run["params"].items())
        figures[f"kpa:{knobs}".rstrip(":")].append((run["gpu_ratio_clairvoyant"], run["violations_pct"]))
    assert {len(seeds) for seeds in figures.values()} == {2}
    means = {policy: tuple(sum(of) / 2 for of in zip(*seeds, strict=True)) for policy, seeds in figures.items()}
    bettered = {
        policy
        for policy, (gpu, late) in means.items()
        if any(other != (gpu, late) and other[0] <= gpu and other[1] <= late for other in means.values())
    }
    assert 2 < len(bettered) < len(means) - 2
    assert {name: sorted(front) for name, front in document["front"].items()} == {
        "S6-aibrix": sorted(set(means) - bettered)
    }
    assert main(swept) == 0
    shown = [line.split() for line in capsysbinary.readouterr().out.decode().splitlines()[1:]]
    assert {line[1] for line in shown} == set(means)
    assert {line[1] for line in shown if line[-1] == "*"} == set(means) - bettered
    (drawn,) = _fields(picture)
    assert {"S6-aibrix", "GPU time / clairvoyant", "violations, %", "kpa"} <= drawn.texts
    assert drawn.points == len(means)


def test_settings_of_a_sweep_run_once(trace: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    swept = ["--trace", trace, "--policy", "hpa:target=4", "--policy", "halcyon+balancer", "--max", "5", "--sweep"]
    runs = [(run["policy"], run["params"]) for run in _json(capsysbinary, *swept)["runs"]]
    # The grid of the HPA has five targets for each of three behaviours; the planner has no grid.
    assert runs == [
        ("hpa", {"target": "4"}),
        ("hpa", {"target": "4", "behavior": "{}"}),
        ("hpa", {"target": "4", "behavior": "{}", "down_window_s": "60"}),
        ("halcyon+balancer", {}),
    ]


def test_a_picture_draws_load_replicas_queue_and_latency_of_each_policy(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "one.svg"
    # 20 requests/s until the end, at replicas that serve 10 each: where there is one, the queue grows.
    policies = ["--policy", "static:n=1", "--policy", "static:n=3"]
    assert main(["--trace", trace, *policies, "--plot", str(picture)]) == 0
    load, count, queue, latency = _fields(picture)
    assert {"requests/s", "load.csv, start 60 s, seed 1"} <= load.texts
    assert {"replicas", "static:n=1", "static:n=3"} <= count.texts
    assert "waiting" in queue.texts
    assert {"slowest answer, s", "minutes"} <= latency.texts
    ((rate,), (few, many), (grown, none), (slow, fast, objective)) = (
        field.lines for field in (load, count, queue, latency)
    )
    assert rate[0] > 0.8
    assert rate[-1] < 0.2
    assert few[-1] < 0.5 < many[-1]
    assert max(none) < 0.5 < grown[-1]
    assert max(fast) < objective[0] < max(slow)
    assert "static:n=3" in capsys.readouterr().out


def test_a_picture_is_the_same_every_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pictures = [tmp_path / "one.svg", tmp_path / "two.svg"]
    for picture in pictures:
        assert main([*_FAST, "--plot", str(picture)]) == 0
    assert pictures[0].read_bytes() == pictures[1].read_bytes()
    assert "hpa" in capsys.readouterr().out


def test_a_picture_may_be_a_bitmap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "one.png"
    assert main([*_FAST, "--plot", str(picture)]) == 0
    head = picture.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = (int.from_bytes(head[at : at + 4], "big") for at in (16, 20))
    assert width >= 600
    assert height >= 400
    assert "hpa" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is nothing to simulate: set --scenario or --trace"),
        (["--scenario", "S99"], "no scenario 'S99'; there are S1, S2"),
        (["--scenario", "S10"], "make bench-reaction"),
        (["--scenario", "S1", "--policy", "nobody"], "no policy 'nobody'; there are halcyon, "),
        ([*_FAST[:2], "--policy", "kpa:windw=3"], "kpa has no knob 'windw'.*for example"),
        (
            ["--scenario", "S1", "--policy", "halcyon:start_s=nan"],
            "start_s is 'nan'; it has to be a number of at least 0",
        ),
        (["--scenario", "S1", "--policy", "halcyon:start_s=-5"], "start_s is '-5'; .*for example halcyon:drain_s=20"),
        (
            ["--scenario", "S1", "--policy", "halcyon:instances=0"],
            "instances is 0; it has to be a whole number of at least 1",
        ),
        (["--scenario", "S1", "--policy", "halcyon:max_batch=0"], "max_batch is 0; it has to be a whole number"),
        (
            ["--scenario", "S1", "--policy", "halcyon:high=2.5"],
            "high is 2.5; it has to be a whole number of at least 1",
        ),
        (["--scenario", "S1", "--policy", "kpa:target"], "'target' is no key=value; for example kpa:key=value"),
        (["--scenario", "S1", "--policy", "kpa:target=1,target=2"], "target is given twice"),
        (["--scenario", "S1", "--service", "a_ms=3"], "--service lacks t0_ms and max_batch; for example t0_ms=80"),
        (["--scenario", "S1", "--service", "t0_ms=80,max_batch=8,speed=3"], "--service has no 'speed'; it has t0_ms,"),
        (["--scenario", "S1", "--service", "t0_ms=80,max_batch=8"], "needs --slo-ms.*--slo-ms 500"),
        (["--scenario", "S1", "--service", "t0_ms=x,max_batch=8", "--slo-ms", "5"], "t0_ms is 'x'.*t0_ms=80"),
        (["--scenario", "S1", "--service", "t0_ms=1,max_batch=0", "--slo-ms", "5"], "max_batch is '0'.*max_batch=8"),
        (["--scenario", "S1", "--service", "t0_ms=0,max_batch=2", "--slo-ms", "5"], "a batch takes no time"),
        (["--scenario", "S1", "--min", "9", "--max", "3"], "--min 9 is above --max 3"),
        (["--scenario", "S1", "--seeds", "0"], "--seeds: '0' has to be a whole number of at least 1"),
        (["--scenario", "S1", "--start-delay", "-1"], "--start-delay: '-1' has to be a number of at least 0"),
        (["--scenario", "S1", "--slo-ms", "soon"], "--slo-ms: 'soon' has to be a number above 0"),
        (["--scenario", "S1", "--superpose", "3"], "--superpose makes copies of a --trace"),
        (["--trace", "x.csv", "--cv", "3"], "--cv is for the loads of scenarios"),
        (["--scenario", "S1", "--trace", "x.csv"], "not allowed with"),
        (["--trace", "none.csv"], r"none\.csv can't be read"),
        (["--scenario", "S1", "--plot", "out.pdf"], r"has to end in \.svg or \.png"),
        (
            ["--scenario", "S1", "--plot", "/proc/x/out.svg"],
            r"--plot .*: can't be written: .*; for example --plot /tmp/out.svg",
        ),
    ],
)
def test_a_wrong_option_is_answered_with_what_would_be_right(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert re.search(message, " ".join(capsys.readouterr().err.split()))


def test_copies_of_a_trace_without_end_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "load.csv").write_text("t_s\n0\n1\n")
    with pytest.raises(SystemExit):
        main(["--trace", str(tmp_path / "load.csv"), "--superpose", "100000000"])
    message = " ".join(capsys.readouterr().err.split())
    assert "is 200,000,000 requests; at most 50,000,000 are possible, for example --superpose 25000000" in message


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert "halcyon simulate --scenario S1 --policy halcyon --policy kpa" in shown
    assert "--observation-lag" in shown


def test_a_picture_of_one_scenario_names_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--scenario", "S6-aibrix", "--scenario", "S6-mooncake", "--policy", "static", "--plot"]
    assert main([*options, str(tmp_path / "one.svg")]) == 0
    assert "--plot shows S6-aibrix alone; plot S6-mooncake with" in capsys.readouterr().err


def test_a_picture_of_fronts_has_each_scenario(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "fronts.svg"
    options = ["--scenario", "S6-aibrix", "--scenario", "S6-mooncake", "--policy", "static", "--sweep", "--plot"]
    assert main([*options, str(picture)]) == 0
    assert all(name in picture.read_text() for name in ("S6-aibrix", "S6-mooncake"))
    assert "front" in capsys.readouterr().out
