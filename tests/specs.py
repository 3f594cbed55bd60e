"""Sources of specs for components that read them."""

from __future__ import annotations

from dataclasses import dataclass

from halcyon.api.spec import Spec
from halcyon.kube.kinds import Key


@dataclass(frozen=True)
class OneSpec:
    """A source with the same spec for every model, or None for no spec."""

    spec: Spec | None

    def get(self, _: Key, /) -> Spec | None:
        return self.spec
