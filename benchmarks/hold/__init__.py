"""Measurements behind docs/quality/hold.md: tenants and clients that do harm, faults, and size. One module per section."""
