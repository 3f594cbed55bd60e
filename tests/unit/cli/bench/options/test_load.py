"""The scenario that the options for the load describe."""

from __future__ import annotations

from pathlib import Path

import pytest

from halcyon_cli.bench.options.inputs import InputOptions
from halcyon_cli.bench.options.load import LoadOptions
from halcyon_cli.errors import InputError
from halcyon_measure.schedule.arrivals import chunks


def trace(folder: Path) -> Path:
    """Write 121 arrivals, two a second over a minute."""
    path = folder / "arrivals.csv"
    path.write_text("t_s\n" + "".join(f"{n / 2}\n" for n in range(121)), "utf-8")
    return path


def sent(options: LoadOptions) -> list[float]:
    return [time for times in chunks(options.build_scenario()) for time in times.tolist()]


def test_a_trace_of_a_minute_is_sent_whole(tmp_path: Path) -> None:
    assert sent(LoadOptions(trace=trace(tmp_path))) == [n / 2 for n in range(121)]


def test_a_duration_ends_a_trace_early(tmp_path: Path) -> None:
    options = LoadOptions(trace=trace(tmp_path), duration=20.0)
    assert sent(options) == [n / 2 for n in range(40)]
    assert options.build_scenario().trace[-1] == 19.5


def test_a_duration_before_the_second_arrival_has_an_example(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--duration is 0.4 s, and the second arrival .* at 0.5 s; .* --duration 2s"):
        LoadOptions(trace=trace(tmp_path), duration=0.4).build_scenario()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (LoadOptions(callers=5, rate=10.0), r"--callers has no effect in scenario sustained.*--max-in-flight 32"),
        (LoadOptions(callers=5, preset="server", rate=10.0), r"--callers has no effect in scenario sustained"),
        (LoadOptions(scale=2.0, rate=10.0), r"--scale is of a trace; for example --trace FILE.csv --scale 2"),
    ],
)
def test_an_option_without_effect_in_a_scenario_is_refused(options: LoadOptions, message: str) -> None:
    with pytest.raises(InputError, match=message):
        options.build_scenario()


def test_callers_are_those_of_blocking_and_offline_scenarios() -> None:
    assert LoadOptions(callers=5).build_scenario().callers == 5
    assert LoadOptions(callers=5, scenario="offline", requests=9).build_scenario().callers == 5


def test_a_shape_of_an_input_is_given_once() -> None:
    with pytest.raises(InputError, match="--shape x is given twice"):
        InputOptions(shapes=("x=1", "y=2", "x=3")).payload(preset="", seed=1)
