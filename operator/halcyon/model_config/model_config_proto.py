"""Protobuf message ModelConfig of Triton, from the package tritonclient.

The generated module is loaded directly from its file. Importing `tritonclient.grpc` would also import grpc and numpy,
which takes seconds, and more memory than the whole fetcher. The wheel of tritonclient is pinned by hash. Tests load the
module, so they fail if a release moves the file.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from halcyon.model_config.errors import ModelError

ModelConfig: TypeAlias = Any
"""Type of the Protobuf message `inference.ModelConfig`. The generated code has no type annotations."""


@cache
def path() -> Path | None:
    """Return the path of the generated module `model_config_pb2`; None if protobuf or tritonclient is not installed."""
    if importlib.util.find_spec("google") is None or importlib.util.find_spec("google.protobuf") is None:
        return None
    package = importlib.util.find_spec("tritonclient")
    folders = (package and package.submodule_search_locations) or ()
    files = (Path(folder) / "grpc" / "model_config_pb2.py" for folder in folders)
    return next((file for file in files if file.is_file()), None)


@cache
def module() -> ModuleType:
    """Return the generated module `model_config_pb2`.

    Raises:
        ModelError: tritonclient is not installed.
    """
    file = path()
    spec = None
    if file is not None:
        spec = importlib.util.spec_from_file_location("halcyon.model_config._model_config_pb2", file)
    if spec is None or spec.loader is None:
        raise ModelError("tritonclient/grpc/model_config_pb2.py is missing from this image: install tritonclient>=2.60")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def empty() -> ModelConfig:
    """Return an empty model configuration."""
    return module().ModelConfig()


def data_type(name: str) -> int:
    """Return the enum number of a data type, whose name is given without `TYPE_`, for example `FP32`."""
    number: int = module().DataType.Value(f"TYPE_{name}")
    return number


def data_type_name(number: int) -> str:
    """Return the name of a data type without `TYPE_`, as in the spec of a ModelDeployment, for example `FP32`."""
    name: str = module().DataType.Name(number)
    return name.removeprefix("TYPE_")
