"""Sentences that are formatted only when read: thousands are decided per second, and hardly any is read."""

from __future__ import annotations

from typing_extensions import override

from halcyon.scaling.frozen import immutable


@immutable(frozen=True, slots=True)
class LazyText:
    """A format string with its values."""

    form: str
    """Format string for `str.format`."""
    values: tuple[float | str, ...]

    @override
    def __str__(self) -> str:
        """Return the formatted sentence."""
        return self.form.format(*self.values)
