"""Errors of a measurement. Each message has the object, the field, the value, the limit and an example.

MeasureError
├── ScenarioError  a load can't be run as it is described
├── TensorError    a file doesn't fit the inputs of the model
├── HookError      a function of the user raised an exception or returned something else than tensors
├── ModelError     a model's file can't be counted, converted or run
├── SettingError   a figure that the site or an option gives is impossible
└── TargetError    the server can't be reached, has no such model, or speaks another protocol
"""

from __future__ import annotations


class MeasureError(Exception):
    """The measurement isn't possible. The message contains the problem, its reason and the next step."""


class ScenarioError(MeasureError):
    """The load can't be run as it is described."""


class TensorError(MeasureError):
    """A file doesn't fit the inputs of the model."""


class HookError(MeasureError):
    """A user function raised an exception, or returned something other than tensors."""


class TargetError(MeasureError):
    """The server can't be reached, has no such model, or uses another protocol."""


class ModelError(MeasureError):
    """The operations in a model's file can't be counted, or the model can't be converted or run."""


class SettingError(MeasureError):
    """A value that the user, an option or the site gives is impossible."""
