"""Values that a decision makes anew: immutable by the type checker's word, and quick to make.

A frozen dataclass guards its fields at run time, and whoever makes one pays for it: 0.05 us a field, which is set around the
guard. A decision makes some twenty values of 150 fields, so the guard would be a tenth of what it may cost. The type checker
sees `dataclass` itself here, and refuses an assignment all the same: write `@immutable(frozen=True, slots=True)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as immutable
else:
    from dataclasses import dataclass

    def immutable(*, frozen: bool, slots: bool) -> object:
        """As `dataclass`: what is frozen compares and hashes by its fields; nothing stops an assignment at run time."""
        return dataclass(slots=slots, unsafe_hash=frozen)


__all__ = ["immutable"]
