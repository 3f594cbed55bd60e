"""The field `status.advice`, which recommends changes of the spec. Pure.

Out of scope: which advice is shown (`halcyon.control.advice.selection`).
"""

from __future__ import annotations

from typing import Any

from halcyon.control.advice import rules, selection
from halcyon.control.state.scope import Scope


def make(scope: Scope) -> list[Any] | None:
    """Return the value of `status.advice`; None if there is no advice.

    A piece of advice is left out if its field already has the advised value.
    """
    if scope.advice is None:
        return list(scope.status.get("advice") or ()) or None
    spec = scope.resource.get("spec")
    values = [(advice, rules.value_of(spec, advice.field)) for advice in scope.advice.shown]
    return [selection.write(advice, value) for advice, value in values if value != advice.finding.value] or None
