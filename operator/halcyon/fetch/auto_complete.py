"""Detection of Python models whose configuration Triton need not complete.

Triton first starts the process of a Python model to call its function `auto_complete_config`, stops it, and starts it
again to serve. So all imports of model.py run twice (checked with Triton 2.51). The first start can be skipped if
config.pbtxt is complete and the model does not have this function. In case of doubt, it is not skipped.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from halcyon.fetch import mounted_source
from halcyon.fetch.mounted_source import ModelFolder
from halcyon.model_config import config_pbtxt, ensemble
from halcyon.model_config.errors import ModelError
from halcyon.model_config.merge import backend_of

_CLASS, _FUNCTION, _FILE = "TritonPythonModel", "auto_complete_config", "model.py"
_MAX_BYTES = 256 * 1024
"""Maximum size in bytes of a model.py that is analysed. A larger file counts as a case of doubt."""


def are_complete(models: Iterable[tuple[bytes | None, ModelFolder]]) -> bool:
    """Return True if Triton would add nothing to these models' configurations, and at least one is a Python model.

    Each model is (content of its config.pbtxt, its folder). An ensemble always counts as complete, because Triton adds
    nothing to it.
    """
    others = [
        (content, folder) for content, folder in models if content is None or not ensemble.describes_ensemble(content)
    ]
    return bool(others) and all(content is not None and is_complete(content, folder) for content, folder in others)


def is_complete(content: bytes, folder: ModelFolder) -> bool:
    """Return True if the configuration of a Python model is complete, so that Triton would add nothing to it."""
    try:
        config = config_pbtxt.parse(content)
    except ModelError:
        return False
    is_explicit = config.input and config.output and config.default_model_filename in {"", _FILE}
    return backend_of(config) == "python" and bool(is_explicit) and not any(map(_may_add, _programs(folder)))


def _programs(folder: ModelFolder) -> Iterator[str]:
    """Yield the text of each version's model.py. The text is empty if the file cannot be read."""
    for version in folder.versions:
        try:
            yield mounted_source.content(folder.path / str(version) / _FILE, _MAX_BYTES).decode()
        except (ModelError, UnicodeDecodeError):
            yield ""


def _may_add(program: str) -> bool:
    """Return True if the model's class may have the function `auto_complete_config`.

    The class may define it, inherit it, or receive it from other code.
    """
    if _FUNCTION in program:
        return True
    try:
        body = ast.parse(program).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    classes = [node for node in body if isinstance(node, ast.ClassDef) and node.name == _CLASS]
    others = [node for node in body if not isinstance(node, ast.ClassDef)]
    if len(classes) != 1 or any(_binds(node) for node in others):
        return True
    (model,) = classes
    return bool(model.decorator_list or model.keywords) or any(
        not (isinstance(base, ast.Name) and base.id == "object") for base in model.bases
    )


def _binds(node: ast.stmt) -> bool:
    """Return True if a statement outside the class, at any depth, may rebind the class's name or modify the class."""
    for part in ast.walk(node):
        if isinstance(part, ast.alias) and (part.asname or part.name) in {_CLASS, "*"}:
            return True
        if isinstance(part, ast.Name) and part.id == _CLASS:
            return True
        if isinstance(part, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and part.name == _CLASS:
            return True
    return False
