"""Exceptions of a tuning run."""

from __future__ import annotations

from halcyon_measure.errors import MeasureError


class TuneError(MeasureError):
    """The model can't be tuned, or the tuning run can't continue.

    The message gives the reason and a remedy.
    """
