"""The health check for Argo CD in docs/guides/install.md, run by Lua: it sees in each status what kstatus sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lupa.lua51  # type: ignore[import-untyped]  # it has no types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.blocks import blocks
from tests.unit.control.status import kstatus

PAGE = Path(__file__).parents[4] / "docs" / "guides" / "install.md"
SAME = {"Current": "Healthy", "InProgress": "Progressing", "Failed": "Degraded"}


(SCRIPT,) = blocks(PAGE, "lua")
# As Argo CD runs it: Lua 5.1, the object in `obj`, no way out.
LUA = lupa.lua51.LuaRuntime(register_eval=False, register_builtins=False)
CHECK = LUA.execute(f"return function(obj) {SCRIPT} end")


def health(resource: dict[str, Any]) -> dict[str, str]:
    return dict(CHECK(LUA.table_from(resource, recursive=True)))


def condition(kind: str, state: str) -> dict[str, Any]:
    return {"type": kind, "status": state, "reason": "Why", "message": f"{kind} is {state}"}


@given(
    seen=st.integers(0, 3),
    ready=st.sampled_from(["True", "False", "Unknown"]),
    more=st.sampled_from([None, "Reconciling", "Stalled"]),
    turned=st.booleans(),
)
def test_argo_health_equals_kstatus(seen: int, ready: str, more: str | None, *, turned: bool) -> None:
    conditions = [condition("Accepted", "True"), condition("Ready", ready)]
    conditions += [condition(more, "True")] if more else []
    resource = {
        "metadata": {"generation": 2},
        "status": {"observedGeneration": seen, "conditions": conditions[:: -1 if turned else 1]},
    }
    assert health(resource)["status"] == SAME[kstatus.compute(resource)]


@pytest.mark.parametrize("status", [{}, {"observedGeneration": 0}])
def test_an_unobserved_object_is_in_progress(status: dict[str, Any]) -> None:
    assert health({"metadata": {"generation": 1}, "status": status}) == {
        "status": "Progressing",
        "message": "the operator has not seen this spec yet",
    }


def test_the_health_message_is_that_of_the_condition() -> None:
    status = {"observedGeneration": 1, "conditions": [condition("Ready", "False"), condition("Stalled", "True")]}
    assert health({"metadata": {"generation": 1}, "status": status}) == {
        "status": "Degraded",
        "message": "Stalled is True",
    }
