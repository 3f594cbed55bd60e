"""Sharing of equal parts of accepted specs, such as `traffic`, so that each is in memory only once.

An accepted spec is stored with all its defaults, so each model would have its own objects of each part. Most models of
a fleet have the same `traffic`, `rollout` and `batching`, and many have the same `runtime` and `scaling`. Parts are
immutable, so models can share them.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

from halcyon.api.spec import Spec
from halcyon.api.types import ApiModel


class SharedParts:
    """Parts of the specs in use. A part is dropped with the last spec that contains it."""

    def __init__(self) -> None:
        self._parts: WeakValueDictionary[tuple[type[ApiModel], str], ApiModel] = WeakValueDictionary()

    def shared(self, spec: Spec) -> Spec:
        """Return an equal spec that reuses the part objects of earlier specs if they are equal to its own."""
        parts = {
            name: self._parts.setdefault((type(part), part.model_dump_json()), part)
            for name, part in spec
            if isinstance(part, ApiModel)
        }
        return spec.model_copy(update=parts)
