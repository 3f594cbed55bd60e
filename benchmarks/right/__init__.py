"""Measurements behind docs/quality/right.md: models, clients and clusters unlike those of the tests. One module per section."""
