"""Errors that end a user command with one line on stderr and exit status 2.

Failure
├── ClusterError  the cluster is unreachable, denies access, or has no such object
└── InputError    a file or an argument is invalid
"""

from __future__ import annotations


class Failure(Exception):  # noqa: N818  # a failure of the command, not a defect in the code
    """A command has failed. The message contains the problem, its reason and a next step."""


class ClusterError(Failure):
    """The cluster is unreachable, denies access, or has no such object."""


class NoAccessError(ClusterError):
    """The cluster rejects the credentials, or the user lacks the permission for a request."""


class InputError(Failure):
    """A file or an argument is invalid."""
