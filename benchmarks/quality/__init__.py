"""Tables of measurements against their targets: build/quality/*.json and docs/quality/*.md."""
