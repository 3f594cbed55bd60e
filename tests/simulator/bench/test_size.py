"""The size benchmark's page: fitted lines, the chart's memory limit, absent figures, and the balancers' parts of a load."""

from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from benchmarks.agents import address, share
from benchmarks.hold.size_page import Line, Measured, fit, limit_mib, text, write
from halcyon.api.documents.observation_report import BalancerSample


def measured(models: int, *, rest_cores: float = 0.1, step_p99_s: float | None = 2.5) -> Measured:
    """Figures that grow by 0.25 MiB for each model from 120 MiB."""
    memory = 120 + models / 4
    return Measured(
        models=models, served_s=10, rest_mib=memory, busy_mib=memory, most_mib=memory, rest_cores=rest_cores,
        busy_cores=0.2, step_p50_s=1.5, step_p99_s=step_p99_s, steps=15, not_raised=0, decision_age_p99_s=4.5,
        first_decisions_s=9.0, agents_back_s=8.0, writes_at_rest=0, api_requests_per_s=12.0, etcd_mib=10 + models / 50,
        dashboards=64, counts_moved=0,
    )  # fmt: skip


def test_line_through_points_of_a_line_is_that_line() -> None:
    assert fit([(100, 145), (300, 195), (1000, 370)]) == Line(pytest.approx(120), pytest.approx(0.25))


def test_line_has_the_least_squares_between_points() -> None:
    # By hand: the means are 2 and 10/3, and the slope is (-1 * -7/3 + 1 * 8/3) / 2.
    assert fit([(1, 1), (2, 3), (3, 6)]) == Line(pytest.approx(-5 / 3), pytest.approx(2.5))


@pytest.mark.parametrize("points", [[], [(100, 1.0)], [(100, 1.0), (100, 2.0)]])
def test_no_line_without_two_different_sizes(points: list[tuple[float, float]]) -> None:
    assert fit(points) is None


def test_limit_is_the_charts_for_expected_models() -> None:
    assert (limit_mib(200), limit_mib(2000)) == (435, 2595)


def test_page_extends_the_lines_and_says_what_ends_growth() -> None:
    page = text([measured(100, rest_cores=0.02), measured(1000, rest_cores=0.2)])
    assert "| memory under load, MiB | 120 | 250 | 2620 | 12620 |" in page
    assert "about 5,000 idle models saturate the operator's single CPU core" in page


def test_page_shows_a_dash_for_what_was_not_reached() -> None:
    assert "| 100 | 1.5 | - | 15 | 0 | 4.5 |" in text([measured(100, step_p99_s=None)])


def test_page_of_one_size_extends_no_line(tmp_path: Path) -> None:
    write([measured(100)], page=tmp_path / "size.md", plot=tmp_path / "size.svg")
    assert "On paper" not in (tmp_path / "size.md").read_text()
    assert "<svg" in (tmp_path / "size.svg").read_text()


def test_parts_of_two_balancers_add_up_to_the_whole() -> None:
    total = BalancerSample(queued=5, inflight=4, requests=1001, rejected=0, errors=0)
    parts = [share(total, part=part, parts=2) for part in range(2)]
    assert [(sample.queued, sample.inflight, sample.requests) for sample in parts if sample] == [
        (2, 2, 500),
        (3, 2, 501),
    ]
    assert share(None, part=0, parts=2) is None


def test_each_of_4000_agents_has_an_address_of_its_own() -> None:
    addresses = {ip_address(address(number)) for number in range(4000)}
    assert len(addresses) == 4000
    assert all(each in ip_network("127.0.0.0/8") and each not in ip_network("127.0.0.0/16") for each in addresses)
