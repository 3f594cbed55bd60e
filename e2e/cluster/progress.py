"""Progress messages of commands on stderr, so that stdout stays free for `env` and `status`."""

import sys


def say(line: str) -> None:
    """Print one line of progress."""
    print(f"cluster: {line}", file=sys.stderr, flush=True)
