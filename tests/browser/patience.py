"""How long the browser tests wait."""

PATIENCE_MS = 60_000
"""Ends what never comes; how long things take are figures, not assertions."""
