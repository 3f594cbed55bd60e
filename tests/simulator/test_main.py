import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from halcyon.cli.main import main as halcyon
from halcyon.simulate.main import main

_FAST = ["--scenario", "S6-aibrix", "--policy", "hpa"]
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


def test_a_trace_is_superposed_and_limits_reach_the_run(trace: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    law = ["--service", "t0_ms=400,a_ms=0,max_batch=4,instances=1", "--slo-ms", "2400"]
    given = ["--trace", trace, "--superpose", "3", *law, "--policy", "hpa", "--min", "2", "--max", "3"]
    (run,) = _json(capsysbinary, *given, "--queue-limit", "5", "--observation-lag", "15")["runs"]
    assert (run["scenario"], run["requests"]) == ("load.csv", 12000)
    assert run["refused_pct"] > 0
    (unlimited,) = _json(capsysbinary, *given)["runs"]
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
    given = ["--scenario", "S1", "--policy", "kpa", "--max", "30", "--min", "1"]
    low, high = (_json(capsysbinary, *given, option, value)["runs"][0][figure] for value in (less, more))
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
        ([], "nothing to simulate: give --scenario or --trace"),
        (["--scenario", "S99"], "no scenario 'S99'; there are S1, S2"),
        (["--scenario", "S10"], "make bench-reaction"),
        (["--scenario", "S1", "--policy", "nobody"], "no policy 'nobody'; there are halcyon, "),
        ([*_FAST[:2], "--policy", "kpa:windw=3"], "kpa has no knob 'windw'.*for example"),
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
    ],
)
def test_a_wrong_option_is_answered_with_what_would_be_right(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert re.search(message, " ".join(capsys.readouterr().err.split()))


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert "halcyon simulate --scenario S1 --policy halcyon --policy kpa" in shown
    assert "--observation-lag" in shown
