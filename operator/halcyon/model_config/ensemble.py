"""Ensembles of a model repository: Triton models that pass each request on to other models, their steps. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from halcyon.model_config import config_pbtxt
from halcyon.model_config.model_config_proto import ModelConfig

_MAX_SHOWN = 8


def is_ensemble(config: ModelConfig) -> bool:
    """Return whether a configuration describes an ensemble."""
    return bool(config.HasField("ensemble_scheduling") or config.platform == "ensemble")


def describes_ensemble(content: bytes) -> bool:
    """Return whether a config.pbtxt describes an ensemble. The result is False if the file is invalid."""
    return is_ensemble(config_pbtxt.parse_if_valid(content))


def missing_step(configs: Mapping[str, bytes | None]) -> str:
    """Return a sentence about the first ensemble step whose model is missing in the repository; empty if there is none.

    `configs` contains the content of each model's config.pbtxt, by name; None for a model without the file. Invalid
    files are ignored, because other checks report them.
    """
    for name, content in configs.items():
        for step in config_pbtxt.parse_if_valid(content).ensemble_scheduling.step:
            if step.model_name not in configs:
                return _sentence(name, step.model_name, sorted(configs))
    return ""


def _sentence(ensemble: str, step: str, folders: list[str]) -> str:
    more = f" and {len(folders) - _MAX_SHOWN} more" if len(folders) > _MAX_SHOWN else ""
    return (
        f"{ensemble} is an ensemble with the step {step!r}, and the source has no model folder of this name; it has "
        f"{', '.join(folders[:_MAX_SHOWN])}{more}. Set the source to the folder that contains the folders of the ensemble and "
        f"of all its steps, for example {ensemble}/config.pbtxt and {step or 'resize'}/1/model.py"
    )
