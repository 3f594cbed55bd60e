"""Exception class of the demo."""


class DemoError(Exception):
    """A step can't continue. The message gives the problem, the reason and the next step."""
