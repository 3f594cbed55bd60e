"""Check of the config.pbtxt of a companion: a model that Triton loads next to the served one. Pure.

Triton receives this file unchanged, without the settings of the ModelDeployment.
"""

from __future__ import annotations

from halcyon.model_config import config_pbtxt
from halcyon.model_config.config_pbtxt import FILE
from halcyon.model_config.errors import ModelConfigError, ModelError, UnknownFieldError


def named(name: str, error: ModelError) -> str:
    """Return the message of an error in a model of a repository, preceded by the model's name."""
    return f"model {name} of the source: {error}"


def check(name: str, content: bytes) -> None:
    """Check the config.pbtxt of the companion in the folder `name`.

    Raises:
        ModelConfigError: the file is invalid, or names another model, which Triton would reject.
    """
    try:
        declared = str(config_pbtxt.parse(content).name)
    except UnknownFieldError:
        declared = config_pbtxt.declared_name(content)  # the field may be known to this Triton
    if declared not in {"", name}:
        raise ModelConfigError(
            f"{FILE} has name: {declared!r}, and Triton requires the name of its folder; remove the line, or write name: "
            f'"{name}"'
        )
