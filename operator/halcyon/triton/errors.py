"""Exception raised by the client of Triton."""

MAX_ERROR_CHARS = 2000
"""Maximum number of characters of Triton's own message that an error quotes."""


class TritonError(OSError):
    """Error raised if a pod did not respond, or if its response does not have Triton's format."""
