"""Kubernetes client library: API client, informer, work queue, leader election, event recorder.

It does not depend on the meaning of a ModelDeployment, so both the operator and the command line use it. Out of scope:
rendering of objects (`halcyon.render`) and control loops (`halcyon.control`).

The client uses `kubernetes.aio`. The `__init__` of the `kubernetes` package would also import its synchronous client,
with OAuth and a second HTTP client: 230 modules and 8 MiB that the operator never uses. Therefore `kubernetes` is
registered here without running its `__init__`, before a module of this package imports `kubernetes.aio`.
"""

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType


def _register_package(name: str) -> None:
    """Register an installed, not yet imported package without running its `__init__`. Its submodules are importable."""
    spec = None if name in sys.modules else find_spec(name)
    if spec is None:
        return
    package = module_from_spec(spec)

    def submodule(attribute: str) -> ModuleType:
        try:
            return import_module(f"{name}.{attribute}")
        except ModuleNotFoundError as error:
            raise AttributeError(f"module {name} has no attribute {attribute}") from error

    vars(package)["__getattr__"] = submodule
    sys.modules[name] = package


_register_package("kubernetes")
