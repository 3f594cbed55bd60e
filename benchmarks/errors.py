"""The only exception class of the benchmarks."""


class BenchError(Exception):
    """A part that can't continue. The message has the problem, the reason and the next step."""
