"""Rows 6.1 and 6.3 to 6.5: `halcyon tune` on a real Triton against full sweeps of the same models."""
