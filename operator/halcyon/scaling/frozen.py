"""Dataclasses for values created on every decision: immutable for the type checker, but cheap to create.

The `__init__` of a frozen dataclass sets each field with `object.__setattr__`, which costs about 0.05 us per field. A
decision creates about twenty values with 150 fields in total, so this would take a tenth of its time budget. Use
`@immutable(frozen=True, slots=True)`: the type checker sees the standard `dataclass` and still rejects assignments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as immutable
else:
    from dataclasses import dataclass

    def immutable(*, frozen: bool, slots: bool) -> object:
        """Return a decorator that makes a class a dataclass.

        If `frozen` is true, instances are hashed by their fields. Unlike in a standard dataclass, assignments are not
        rejected at run time.
        """
        return dataclass(slots=slots, unsafe_hash=frozen)


__all__ = ["immutable"]
