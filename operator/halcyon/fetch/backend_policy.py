"""Enforcement of the site's list of allowed backends in the pod, before Triton reads the model.

The check runs in the pod, because the model's own config.pbtxt is available only there. Triton loads a backend from a
library with the backend's name, and searches the model's folder first. A model must therefore not contain a backend
library, or settings that load other code.

This is not a sandbox: an allowed backend can execute code from the model, and a volume that others can write to may
change after the check.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from halcyon.fetch.errors import BackendError
from halcyon.fetch.mounted_source import ModelFolder
from halcyon.model_config import config_pbtxt
from halcyon.model_config.errors import UnknownFieldError
from halcyon.model_config.merge import backend_of


def check(content: bytes, folder: ModelFolder, allowed: frozenset[str]) -> None:
    """Check that the model uses only allowed backends.

    Raises:
        BackendError: the model uses or contains another backend, or the backend cannot be determined.
    """
    listed = ", ".join(sorted(allowed)) or "none"
    try:
        config = config_pbtxt.parse(content)
    except UnknownFieldError as error:
        raise BackendError(
            f"{error}. This site allows the backends {listed}, so it accepts no file with unknown fields"
        ) from error
    backend = backend_of(config)
    # An ensemble runs no code: Triton passes its requests on to its steps, which are checked, too.
    runs_code = bool(config.backend) or config.platform != "ensemble" or not config.ensemble_scheduling.step
    if runs_code and backend not in allowed:
        problem = f"config.pbtxt names the backend {backend}" if backend else "config.pbtxt names no backend"
        raise BackendError(
            f'{problem}, and this site allows {listed}; for example backend: "{min(allowed, default="onnxruntime")}"'
        )
    for field, value in (
        ("runtime", config.runtime),
        ("model_operations", config.model_operations.op_library_filename),
    ):
        if value:
            raise BackendError(
                f"config.pbtxt has {field}, by which a model loads its own code, and this site allows {listed}; remove the field"
            )
    for name in _libraries(folder):
        raise BackendError(f"{name} is a backend of the model's own, and this site allows {listed}; remove the file")


def _libraries(folder: ModelFolder) -> Iterator[str]:
    """Yield the names of backend libraries in the model's folder and its version folders.

    Triton would prefer them to its own libraries.
    """
    places = [(folder.path, "")] + [
        (folder.path / str(version), f"{version}/") for version in folder.versions if version != folder.added_version
    ]
    for path, prefix in places:
        with os.scandir(path) as entries:
            yield from sorted(prefix + e.name for e in entries if e.name.startswith("libtriton_") and ".so" in e.name)
