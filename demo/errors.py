"""The one exception of the demo."""


class DemoError(Exception):
    """A step can't go on; the message says what, why, and what to do."""
