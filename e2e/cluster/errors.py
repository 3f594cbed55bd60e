"""The only exception class of this package."""


class ClusterError(Exception):
    """A failed operation on a cluster. The message has the problem, the reason and the next step."""
