"""Protobuf message ModelConfig of Triton, from the tritonclient package.

The generated module is loaded directly from its file. Importing `tritonclient.grpc` would import grpc and numpy, which takes seconds and
more memory than the whole fetcher.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from halcyon.fetch.errors import FetchError

ModelConfig: TypeAlias = Any
"""Protobuf message `inference.ModelConfig`; the generated code has no type annotations."""
Warmups: TypeAlias = Any
"""Repeated field `model_warmup` of a ModelConfig."""


@cache
def module() -> ModuleType:
    """Return the generated module `model_config_pb2`.

    Raises:
        FetchError: tritonclient is not installed.
    """
    package = importlib.util.find_spec("tritonclient")
    for folder in (package and package.submodule_search_locations) or ():
        path = Path(folder) / "grpc" / "model_config_pb2.py"
        spec = importlib.util.spec_from_file_location("halcyon.fetch._model_config_pb2", path)
        if spec is not None and spec.loader is not None and path.is_file():
            loaded = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(loaded)
            return loaded
    raise FetchError("tritonclient/grpc/model_config_pb2.py is missing from this image: install tritonclient>=2.60")


def empty() -> ModelConfig:
    """Return an empty configuration of a model."""
    return module().ModelConfig()


def data_type(name: str) -> int:
    """Return the enum number of a data type, given its name without `TYPE_`, for example `FP32`."""
    number: int = module().DataType.Value(f"TYPE_{name}")
    return number


def data_type_name(number: int) -> str:
    """Return the name of a data type without `TYPE_`, as in a spec, for example `FP32`."""
    name: str = module().DataType.Name(number)
    return name.removeprefix("TYPE_")
