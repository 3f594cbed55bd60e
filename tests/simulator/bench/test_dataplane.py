"""The data plane's figures: their file and page, what is read from h2load, what is lost when, and what the peers are told."""

import itertools
import json
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import open_loop
from benchmarks.dataplane import loss, overload, page, peer_configs, results, throughput
from benchmarks.dataplane.h2load import rate_of, times_us
from benchmarks.dataplane.leftovers import owner_of
from benchmarks.dataplane.loss import Window
from benchmarks.dataplane.results import KEYS_OF, PARTS, PartResults, merged
from benchmarks.dataplane.sender import Failure, Sent
from benchmarks.dataplane.stage import PodTimes
from benchmarks.dataplane.throughput import Turn
from benchmarks.dataplane.tritons import Work, request_body
from benchmarks.errors import BenchError

ISSUE_KEYS = {
    "loss",
    "added_latency_ms_p50",
    "throughput_share",
    "cpu_us_per_request",
    "agent_idle_cores",
    "unequal_p99_ratio",
    "ready_to_first_request_s",
    "terminating_to_last_request_s",
    "wake_s",
    "held",
    "held_answered",
    "rss_mib",
    "goodput_at_3x",
    "haproxy_exits",
}


def test_every_key_is_present_and_an_unmeasured_figure_is_none() -> None:
    content = merged({}, "exits", PartResults(figures={"haproxy_exits": 0}), short=True, seconds=1.0)
    assert content.keys() >= ISSUE_KEYS
    assert content["haproxy_exits"] == 0
    assert {content[key] for key in ISSUE_KEYS - {"haproxy_exits"}} == {None}


def test_a_part_that_runs_again_replaces_its_own_figures_and_no_others(tmp_path: Path) -> None:
    file = tmp_path / "dataplane.json"
    for part, figures in (
        ("zero", {"wake_s": 0.5, "held": 100, "held_answered": 100}),
        ("rest", {"rss_mib": 60.0, "agent_idle_cores": 0.005}),
        ("zero", {"wake_s": 0.7}),
    ):
        content = merged(results.read(file), part, PartResults(figures=figures), short=False, seconds=1.0)
        results.write(content, file)
    read = results.read(file)
    assert (read["wake_s"], read["held"], read["rss_mib"]) == (0.7, None, 60.0)
    assert list(read["parts"]) == ["zero", "rest"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["dataplane.json"]


def test_a_figure_under_anothers_key_is_refused() -> None:
    with pytest.raises(ValueError, match="part zero measured rss_mib; its keys are wake_s, held, held_answered"):
        merged({}, "zero", PartResults(figures={"rss_mib": 1.0}), short=False, seconds=1.0)


def test_each_key_has_one_part() -> None:
    keys = [key for owned in KEYS_OF.values() for key in owned]
    assert len(keys) == len(set(keys))
    assert set(keys) >= ISSUE_KEYS


def test_the_share_of_a_service_joins_the_others_whichever_part_ran_last() -> None:
    shares = PartResults(figures={"throughput_share": {"halcyon": 0.6}})
    service = PartResults(figures={}, details={"share": {"direct": 1.0, "service": 0.98}})
    for order in ((("throughput", shares), ("service", service)), (("service", service), ("throughput", shares))):
        content: dict[str, object] = {}
        for part, part_results in order:
            content = merged(content, part, part_results, short=False, seconds=1.0)
        assert content["throughput_share"] == {"halcyon": 0.6, "service": 0.98}


H2LOAD_OUTPUT = """starting benchmark...
finished in 2.35s, 8512.34 req/s, 590.12KB/s
requests: 20000 total, 20000 started, 20000 done, 19990 succeeded, 10 failed, 0 errored, 0 timeout
"""


def test_output_of_h2load_is_parsed_or_an_error() -> None:
    rate = rate_of(H2LOAD_OUTPUT)
    assert (rate.per_s, rate.succeeded, rate.failed) == (8512.34, 19990, 10)
    with pytest.raises(BenchError, match="no result: connect failed"):
        rate_of("connect failed")


def test_only_answered_requests_have_a_time() -> None:
    assert times_us("1\t200\t321\n2\t503\t5\n3\t200\t400\nbroken\n") == [321, 400]


def turns(*per_s: float, us: float = 30.0) -> list[Turn]:
    return [Turn(rate, us, 2.0) for rate in per_s]


def test_shares_and_latencies_are_of_turns_of_one_round() -> None:
    # The machine is twice as quick in the second round: the medians of the rates would tell a share that no round had.
    part_results = throughput.figures(
        {"direct": turns(1000, 2000, 3000), "halcyon": turns(700, 1400, 2100), "haproxy": turns(800, 1600, 2400)},
        {"direct": [0.3, 0.4, 0.5], "halcyon": [0.4, 0.5, 0.6], "haproxy": [0.35, 0.45, 0.55]},
        {"envoy": "no wheel"},
    )
    assert part_results.figures["throughput_share"] == {"halcyon": 0.7, "haproxy": 0.8, "envoy": None}
    assert part_results.figures["added_latency_ms_p50"] == pytest.approx(0.1)
    assert part_results.figures["cpu_us_per_request"] == 30.0
    assert part_results.details["share_of_haproxy"] == 0.875


def sent(*failures: float, by_second: dict[int, int] | None = None) -> Sent:
    return Sent(
        100.0,
        120.0,
        {"http": 50, "grpc": 50},
        [Failure(at + 5.0, at, "grpc", "UNAVAILABLE") for at in failures],
        by_second=by_second or {},
    )


def test_a_failure_counts_in_the_event_in_which_it_was_sent() -> None:
    windows = [Window("at rest", 100.0, 105.0), Window("rollout", 105.0, 112.0), Window("after", 112.0, 121.0)]
    losses = loss.lost(sent(104.9, 105.0, 111.0, by_second={0: 10, 4: 20, 5: 30, 19: 40}), windows)
    assert (losses["requests"], losses["failed"]) == (103, 3)
    assert losses["by_event"] == {
        "at rest": {"requests": 30, "failed": 1, "seconds": 5.0},
        "rollout": {"requests": 30, "failed": 2, "seconds": 7.0},
        "after": {"requests": 40, "failed": 0, "seconds": 9.0},
    }


@given(st.lists(st.floats(100.0, 119.99), max_size=30), st.lists(st.floats(101.0, 119.0), min_size=1, max_size=5))
def test_every_failure_counts_once(failures: list[float], cuts: list[float]) -> None:
    edges = [100.0, *sorted(set(cuts)), 121.0]
    windows = [Window(str(n), begin, end) for n, (begin, end) in enumerate(itertools.pairwise(edges))]
    losses = loss.lost(sent(*failures), windows)
    by_event = losses["by_event"]
    assert isinstance(by_event, dict)
    assert sum(event["failed"] for event in by_event.values()) == losses["failed"] == len(failures)


def test_waits_cover_pods_replaced_under_load_and_are_never_negative() -> None:
    times = PodTimes(
        ready_s={"old": 99.0, "new": 110.0, "silent": 111.0, "early": 112.0},
        leaving_s={"old": 115.0, "new": 118.0, "silent": 119.0},
    )
    load = sent()
    load.first_answer_s = {"old": 100.1, "new": 110.25, "early": 111.9}
    load.first_sent_s = {"old": 100.0, "new": 110.125, "early": 111.8}
    load.last_sent_s = {"old": 115.1, "new": 117.0}
    waits = loss.waits(load, times)
    first, last = waits.first_answer, waits.last_sent
    assert (first, last) == ({"new": 0.25, "early": 0.0}, {"old": 0.1, "new": 0.0})
    assert waits.first_sent == {"new": 0.125, "early": 0.0}
    windows = [Window("a scale", 100.0, 111.5), Window("a rollout", 111.5, 117.0)]
    assert loss.by_event(first, times.ready_s, windows) == {"a scale": [0.25], "a rollout": [0.0]}
    assert loss.by_event(last, times.leaving_s, windows) == {"a rollout": [0.1], "after the load": [0.0]}


def test_results_of_a_load_travel_as_json() -> None:
    load = sent(101.5, by_second={3: 7})
    assert Sent.from_json(load.to_json()) == load
    assert load.requests == 101


def test_goodput_counts_what_came_in_time_and_within_the_overload() -> None:
    load = open_loop.Sent(
        0.0,
        (0.0, 1.0, 5.0, 6.0, 9.5, 9.9),
        (0.5, 1.5, 0.9, None, 0.4, 0.9),
        {"RESOURCE_EXHAUSTED": 1},
        0.0,
    )
    # In time: the 1st, 3rd and 5th. The last one's answer came after the overload.
    outcome = overload.outcome(load, capacity_rps=0.5, for_s=10.0)
    assert outcome.goodput == 0.6
    assert outcome.later == pytest.approx(2 / 6 / 0.5, abs=1e-3)
    assert outcome.accepted_p99_s == 0.9


def test_a_process_names_its_bench_in_its_environment() -> None:
    assert owner_of(b"A=1\0HALCYON_BENCH_DATAPLANE=42\0B=2") == 42
    assert owner_of(b"A=1\0XHALCYON_BENCH_DATAPLANE=42\0") is None
    assert owner_of(b"HALCYON_BENCH_DATAPLANE=x") is None


SERVERS = ("127.0.0.1:1", "127.0.0.2:1")


def test_each_peer_balances_by_least_connections_over_all_servers() -> None:
    texts = {
        "balance leastconn": peer_configs.haproxy(9000, SERVERS),
        "least_conn;": peer_configs.nginx(9000, SERVERS, PurePosixPath("/tmp/x")),
        '"LEAST_REQUEST"': peer_configs.envoy(9000, SERVERS),
    }
    for rule, text in texts.items():
        assert rule in text
        assert "9000" in text
    for text in (texts["balance leastconn"], texts["least_conn;"]):
        assert all(server in text for server in SERVERS)
    [cluster] = json.loads(texts['"LEAST_REQUEST"'])["static_resources"]["clusters"]
    ends = [
        each["endpoint"]["address"]["socket_address"]
        for each in cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    ]
    assert ends == [{"address": "127.0.0.1", "port_value": 1}, {"address": "127.0.0.2", "port_value": 1}]


def test_a_model_sleeps_only_if_configured() -> None:
    assert "parameters" not in Work("nowork").files["config.pbtxt"]
    slow = Work("slow", t0_ms=60.0, a_ms=6.0).files
    assert 'key: "t0_ms" value { string_value: "60" }' in slow["config.pbtxt"]
    assert "sleep" in slow["1/model.py"]


def test_a_request_has_its_length_before_it() -> None:
    body = request_body("m")
    assert body[0] == 0
    assert int.from_bytes(body[1:5], "big") == len(body) - 5


def test_the_page_says_which_targets_hold_and_which_do_not() -> None:
    content = merged(
        {}, "exits", PartResults(figures={"haproxy_exits": 0}, details={"replacements": 2000}), short=False, seconds=1
    )
    content = merged(
        content, "rest", PartResults(figures={"rss_mib": 93.25, "agent_idle_cores": None}), short=True, seconds=1
    )
    text = page.text(content)
    assert "| exits of HAProxy workers while 2,000 pods are replaced | 0 | 0 | yes |" in text
    assert "| resident memory of a balancer pod, MiB | 93.25 | <= 80 | **no**, in a short run |" in text
    assert "| CPU use of an idle agent, cores | - | < 0.01 | - |" in text
    assert "A short run" in text.partition("## A balancer pod")[2]
    assert "| replacements | 2000 |" in text


def test_the_page_has_a_target_per_key_and_a_title_per_part() -> None:
    assert {target.key for target in page.TARGETS} >= ISSUE_KEYS - {"held"}
    assert set(page._TITLES) == set(PARTS)


def test_the_page_of_nothing_is_a_page() -> None:
    assert page.text({}).startswith("# The data plane")
