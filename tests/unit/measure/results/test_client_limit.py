"""What limited a run: figures of the client's processes, and the verdict on them."""

from __future__ import annotations

import pytest

from halcyon_measure.results.client_limit import judge


def used(**fields: float) -> list[dict[str, float]]:
    return [{"wall_s": 10.0, "cpu_s": 1.0, "core_wait_s": 0.05} | fields]


@pytest.mark.parametrize(
    ("usage", "late_s", "is_open", "limit"),
    [
        (used(), 0.0005, True, "none"),
        (used(cpu_s=9.4), 0.03, True, "client CPU"),
        (used(cpu_s=9.4), 0.0, False, "client CPU"),
        (used(cpu_s=5.0), 0.03, True, "client CPU"),
        (used(cpu_s=9.4), 0.0005, True, "none"),
        (used(core_wait_s=3.0), 0.0005, True, "none"),
        (used(core_wait_s=3.0), 0.03, True, "cores"),
        (used(cpu_s=0.1), 0.03, True, "cores"),
        (used(core_wait_s=3.0), 0.0, False, "cores"),
        (used(hook_busy_s=9.8, hook_processes=1.0), 2.0, True, "preparing"),
        (used(hook_busy_s=9.8, hook_processes=4.0), 0.0005, True, "none"),
        ([], None, True, "none"),
    ],
)
def test_the_limit_of_the_client_follows_from_its_figures(
    usage: list[dict[str, float]], late_s: float | None, is_open: bool, limit: str
) -> None:
    assert judge(usage, late_p99_s=late_s, p50_s=0.02, is_open=is_open).limit == limit


def test_a_small_delay_beside_a_long_answer_is_of_no_account() -> None:
    assert judge(used(), late_p99_s=0.004, p50_s=0.2, is_open=True).limit == "none"


def test_a_limit_names_its_figures_and_a_remedy() -> None:
    limit = judge(used(cpu_s=9.4), late_p99_s=0.03, p50_s=0.02, is_open=True)
    assert (
        limit.evidence
        == "its busiest process used 94% of a core, and 1 % of the requests were sent 30.0 ms late or more"
    )
    assert "--processes 2" in limit.remedy
