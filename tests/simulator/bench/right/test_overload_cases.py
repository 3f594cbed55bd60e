"""Trial of single cases of row 4.2, which records nothing."""

import pytest

from benchmarks.right import overload
from benchmarks.right.overload import LAWS, Law, Outcome


@pytest.mark.parametrize("laws", [1, len(LAWS)])
def test_cases_are_measured_once_for_each_law(laws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[tuple[Law, str]] = []

    async def overloaded(law: Law, *, pods: int, for_s: float, case: str) -> list[Outcome]:
        assert (pods, for_s) == (1, 10.0)
        measured.append((law, case))
        return []

    monkeypatch.setattr(overload, "overload", overloaded)
    assert overload.main(["--seconds", "10", "--case", "2 balancers, http", "--laws", str(laws)]) == 0
    assert measured == [(law, "2 balancers, http") for law in LAWS[:laws]]
