"""Errors of a tuning run."""

from __future__ import annotations

from halcyon_measure.errors import MeasureError


class TuneError(MeasureError):
    """A model that can't be tuned, or a tuning run that can't continue. The message has the reason and a remedy."""
