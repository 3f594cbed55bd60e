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
    """A measurement that can't be made. The message contains the problem, its reason and the next step."""


class ScenarioError(MeasureError):
    """A load that can't be run as it is described."""


class TensorError(MeasureError):
    """A file that doesn't fit the inputs of the model."""


class HookError(MeasureError):
    """A function of the user that raised an exception or returned something else than tensors."""


class TargetError(MeasureError):
    """A server that can't be reached, has no such model, or speaks another protocol."""


class ModelError(MeasureError):
    """A model's file that can't be counted, converted or run."""


class SettingError(MeasureError):
    """An impossible value that the user or an option gives."""
