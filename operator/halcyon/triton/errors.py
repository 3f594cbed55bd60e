"""Exception of the client of Triton."""

MAX_ERROR_CHARS = 2000
"""Maximum number of characters of Triton's own message that an error quotes."""


class TritonError(OSError):
    """The pod did not respond, or its response does not have Triton's format."""
