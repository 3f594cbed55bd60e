"""The one exception of the benchmark."""


class BenchError(Exception):
    """A part can't go on; the message says what, why, and what to do."""
