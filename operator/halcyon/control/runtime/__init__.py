"""The operator process: command-line options, construction of its parts, their start and stop, HTTP endpoints, logging."""
