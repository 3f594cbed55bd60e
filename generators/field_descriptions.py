"""Descriptions of a class's fields: the docstrings below them, which Python does not keep, read from the source.

Only the generators need them. With pydantic's `use_attribute_docstrings`, the operator would parse the source of each
model at every start, which takes a tenth of its import time.
"""

from __future__ import annotations

import ast
import inspect
import textwrap

from pydantic import BaseModel

from halcyon.api.schema.structural_schema import JsonSchema, schema


def docstrings(kind: type) -> dict[str, str]:
    """Return the docstring below each field or member of a class, joined into one line, by name.

    Docstrings of base classes are not included.
    """
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    texts: dict[str, str] = {}
    name = ""
    for statement in getattr(definition, "body", ()):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and name:
            texts[name] = " ".join(str(statement.value.value).split())
            name = ""
    return texts


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Return the descriptions of a model's fields, including the inherited ones."""
    owners = [owner for owner in reversed(model.__mro__) if issubclass(owner, BaseModel) and owner is not BaseModel]
    return {name: text for owner in owners for name, text in docstrings(owner).items()}


def described_schema(model: type[BaseModel]) -> JsonSchema:
    """Return the structural schema of a model with the descriptions of its fields."""
    return schema(model, descriptions=descriptions)
