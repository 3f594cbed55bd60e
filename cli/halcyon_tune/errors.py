"""Errors of a tuning."""

from __future__ import annotations

from halcyon_measure.errors import MeasureError


class TuneError(MeasureError):
    """A model that can't be tuned, or a trial that can't go on. The message gives the reason and what helps."""
