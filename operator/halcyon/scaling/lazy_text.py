"""Sentences that are put together when somebody reads them: thousands are decided in a second, and hardly one of them is read."""

from __future__ import annotations

from typing_extensions import override

from halcyon.scaling.frozen import immutable


@immutable(frozen=True, slots=True)
class LazyText:
    """A sentence with its values."""

    form: str
    """As `str.format` takes it."""
    values: tuple[float | str, ...]

    @override
    def __str__(self) -> str:
        """For a reader."""
        return self.form.format(*self.values)
