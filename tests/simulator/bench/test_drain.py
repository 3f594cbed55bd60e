from benchmarks.drain import summary


def drained(pair: int, way: str, drain_s: float, *, case: str = "some", run: int = 1) -> dict[str, object]:
    return {
        "run": run,
        "case": case,
        "pair": pair,
        "way": way,
        "drain_s": drain_s,
        "draining_pod_s": 2 * drain_s + 10,
        "inflight_removed": 1 if way == "as it is" else 0,
    }


def test_gains_are_differences_within_pairs() -> None:
    rounds = [
        drained(0, "told", 3.0),
        drained(0, "as it is", 13.0),
        drained(1, "as it is", 4.0),
        drained(1, "told", 3.5),
        drained(0, "as it is", 5.0, run=2),
        drained(0, "told", 6.0, run=2),
        drained(2, "told", 99.0),  # its other half was not run
        drained(0, "told", 1.0, case="low"),
    ]
    some, low = summary(rounds)
    assert (some["case"], some["pairs"], low["pairs"]) == ("some", 3, 0)
    gain = some["drain_s"]["gain"]
    assert (gain["median"], gain["mean"], gain["max"]) == (0.5, 3.17, 10.0)
    assert gain["mean_interval_95"][0] < 3.17 < gain["mean_interval_95"][1]
    assert some["inflight_removed"]["gain"]["median"] == 1
    assert low["drain_s"]["gain"] == {"median": None, "mean": None, "max": None, "mean_interval_95": None}
