"""Tables of measurements against their targets: docs/quality/data/*.json and docs/quality/*.md."""
