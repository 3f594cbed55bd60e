"""Exceptions of a tuning run."""

from __future__ import annotations

from halcyon_measure.errors import MeasureError


class TuneError(MeasureError):
    """Exception for a model that can't be tuned, or for a tuning run that can't continue.

    The message has the reason and a remedy.
    """
