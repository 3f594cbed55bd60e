"""The operator process: its options, the construction, start and stop of its parts, HTTP endpoints, and logging."""
