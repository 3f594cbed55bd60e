"""The one exception of this package."""


class ClusterError(Exception):
    """The cluster can't do what was asked; the message says what, why, and what to do."""
