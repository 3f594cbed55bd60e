import gzip
import math
from pathlib import Path

import numpy as np
import pytest

from halcyon_simulator.engine import traces
from halcyon_simulator.engine.traces import CLIENT_WINDOWS, WINDOW_S, Clients, TraceError


def _rng(seed: int = 1) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def _single_client(*, rate_rps: float, weibull: bool, shape: float, windows: int) -> Clients:
    return Clients(
        client=np.zeros(windows, dtype=np.int64),
        window=np.arange(windows, dtype=np.int64),
        rate_rps=np.full(windows, rate_rps),
        weibull=np.full(windows, weibull),
        shape=np.full(windows, shape),
    )


def test_times_are_read_sorted_and_begin_at_zero(tmp_path: Path) -> None:
    text = "id,t_s\na,12.5\nb,11\n\nc,14\n"
    (tmp_path / "a.csv").write_text(text)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    assert traces.read(tmp_path / "a.csv").tolist() == [0.0, 1.5, 3.0]
    assert traces.read(tmp_path / "a.csv.gz").tolist() == [0.0, 1.5, 3.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,size\n1,2\n", "no column t_s .* its columns: time, size"),
        ("t_s\n1\nsoon\n", "line 3: t_s is 'soon'; .* for example 12.5"),
        ("a,t_s\n1\n", "line 2: t_s is ''"),
        ("t_s\nnan\n", "line 2: t_s is 'nan'"),
        ("t_s\n", "no rows"),
        ("t_s\n" + 200_000 * "1", "is no CSV: field larger than field limit"),
        ("t_s\n0\n1e12\n", "11,574,074 days long, and a simulation at most 90; t_s is in seconds"),
        ("", "its columns: none"),
    ],
)
def test_a_file_that_is_no_trace_is_named_with_line_and_example(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "load.csv"
    path.write_text(text)
    with pytest.raises(TraceError, match=f"(?s)load.csv.*{message}"):
        traces.read(path)


def test_a_file_that_cant_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none\.csv can't be read: No such file"):
        traces.read(tmp_path / "none.csv")
    for content in (b"t_s\n1\n", gzip.compress(b"t_s\n1\n")[:10] + b"\xff" * 20):
        (tmp_path / "bad.csv.gz").write_bytes(content)
        with pytest.raises(TraceError, match=r"bad\.csv\.gz can't be read"):
            traces.read(tmp_path / "bad.csv.gz")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match="no text in UTF-8"):
        traces.read(tmp_path / "binary.csv")


@pytest.mark.parametrize(
    ("name", "requests", "span_s"),
    [("azure_code", 8819, 3435.948), ("mooncake_synthetic", 3993, 1022.025), ("aibrix_up_and_down", 2026, 455.898)],
)
def test_the_bundled_traces_are_whole(name: str, requests: int, span_s: float) -> None:
    times = traces.bundled(name)
    assert (len(times), float(times[0]), round(float(times[-1]), 3)) == (requests, 0.0, span_s)
    assert np.all(np.diff(times) >= 0)


def test_the_flash_crowd_rises_to_140_thousand_a_minute() -> None:
    minutes = traces.worldcup_minutes()
    assert len(minutes) == 181
    assert 139_000 < max(minutes) < 141_000
    assert sum(minutes) / len(minutes) / 60 == pytest.approx(1310, rel=0.01)


def test_the_trace_by_clients_has_the_rates_of_its_source() -> None:
    trace = traces.clients()
    assert trace.mean_rps == pytest.approx(195.8, rel=0.001)
    assert len(np.unique(trace.client)) == 157
    assert int(trace.window.max()) == CLIENT_WINDOWS - 1


def test_thinning_takes_whole_clients_another_choice_for_another_seed() -> None:
    trace = traces.clients()
    first, again, other = (traces.chosen(trace, mean_rps=10, rng=_rng(seed)) for seed in (1, 1, 2))
    for thin in (first, other):
        assert 9.4 <= thin.mean_rps <= 10.0
        assert all((trace.client == client).sum() == (thin.client == client).sum() for client in np.unique(thin.client))
    assert np.array_equal(first.client, again.client)
    assert set(np.unique(first.client)) != set(np.unique(other.client))


def test_more_than_the_trace_has_is_refused() -> None:
    with pytest.raises(ValueError, match=r"thinned to 500 requests/s: it has 195\.8"):
        traces.chosen(traces.clients(), mean_rps=500, rng=_rng())


@pytest.mark.parametrize(("weibull", "shape"), [(False, 4.0), (False, 0.1), (True, 0.4), (True, 2.0)])
def test_a_replayed_client_keeps_its_rate_in_every_window_and_its_bursts(weibull: bool, shape: float) -> None:
    windows = 300
    times = traces.replayed(_single_client(rate_rps=1.0, weibull=weibull, shape=shape, windows=windows), rng=_rng())
    of_weibull = math.sqrt(math.gamma(1 + 2 / shape) / math.gamma(1 + 1 / shape) ** 2 - 1)
    cv = of_weibull if weibull else 1 / math.sqrt(shape)
    expected = windows * WINDOW_S
    assert abs(len(times) - expected) < 4 * cv * math.sqrt(expected)
    gaps = np.diff(times)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.1)
    # A process that began at every window's start would have its first second too full where it is bursty.
    first_seconds = float((times % WINDOW_S < 10).sum())
    spread = np.histogram(times, np.arange(windows + 1) * WINDOW_S)[0].std() if cv > 1 else 25.0
    assert abs(first_seconds - windows * 10) < 4 * spread * math.sqrt(windows)


def test_a_replay_of_some_clients_has_their_mean_rate_and_is_reproducible() -> None:
    trace = traces.clients()
    days = trace.rows((trace.window < 36) & (trace.client < 60))
    times = traces.replayed(days, rng=_rng())
    expected = float(days.rate_rps.sum()) * WINDOW_S
    assert len(times) == pytest.approx(expected, rel=0.03)
    assert np.all(np.diff(times) >= 0)
    assert np.array_equal(times, traces.replayed(days, rng=_rng()))
