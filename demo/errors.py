"""The only exception class of the demo."""


class DemoError(Exception):
    """A step that can't continue. The message has the problem, the reason and the next step."""
