"""The operator process: options, construction of its parts, their start and stop, HTTP endpoints, and logging."""
