"""What ends a command of people with one line on stderr and exit status 2.

Failure
├── ClusterError  what was asked of the cluster can't be had
└── InputError    a file or an argument can't be used
"""

from __future__ import annotations


class Failure(Exception):  # noqa: N818  # a failure of the command, not of the code
    """The text says what can't be done, why, and what to do."""


class ClusterError(Failure):
    """What was asked of the cluster can't be had."""


class InputError(Failure):
    """A file or an argument can't be used."""
