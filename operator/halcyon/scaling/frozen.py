"""Dataclasses for values created on every decision: immutable to the type checker, and cheap to create.

A frozen dataclass bypasses its own guard in `__init__`, which costs about 0.05 us per field. A decision creates some
twenty values with 150 fields, so the guard would take a tenth of its time budget. The type checker sees plain
`dataclass` here and still rejects assignments: write `@immutable(frozen=True, slots=True)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as immutable
else:
    from dataclasses import dataclass

    def immutable(*, frozen: bool, slots: bool) -> object:
        """Build a dataclass; a frozen one compares and hashes by its fields, but allows assignment at run time."""
        return dataclass(slots=slots, unsafe_hash=frozen)


__all__ = ["immutable"]
