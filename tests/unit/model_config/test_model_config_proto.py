"""Triton's message ModelConfig: the locked wheel of tritonclient has the generated module, at the path that is read."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import files

import pytest

from halcyon.model_config import model_config_proto, spec_check
from halcyon.model_config.errors import ModelError


@pytest.fixture
def _fresh() -> Iterator[None]:
    """Forget the module before and after, because both functions keep it."""
    for function in (model_config_proto.path, model_config_proto.module):
        function.cache_clear()
    yield
    for function in (model_config_proto.path, model_config_proto.module):
        function.cache_clear()


def test_the_locked_wheel_has_the_module_where_it_is_read() -> None:
    listed = {str(file) for file in files("tritonclient") or ()}

    assert "tritonclient/grpc/model_config_pb2.py" in listed
    assert model_config_proto.path() is not None
    assert model_config_proto.empty().DESCRIPTOR.full_name == "inference.ModelConfig"


def test_the_module_loads_without_grpc_and_numpy() -> None:
    code = (
        "import sys; from halcyon.model_config import model_config_proto as p; p.empty();"
        "print(sorted({'grpc', 'numpy', 'tritonclient'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.usefixtures("_fresh")
@pytest.mark.parametrize("missing", ["tritonclient", "google.protobuf", "google"])
def test_a_missing_package_is_named_and_not_checked_with(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else find(name))

    assert not spec_check.is_available()
    with pytest.raises(ModelError, match=r"model_config_pb2.py is missing from this image: install tritonclient>=2.60"):
        model_config_proto.module()
