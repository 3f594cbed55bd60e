"""YAML loader that gives unquoted values the same types as kubectl and Helm, which send JSON to the API server.

PyYAML's own types differ: `y` and `1e3` are texts, `8:30` is a number, and `2026-01-01` is a date.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml
from yaml.nodes import ScalarNode

_BOOL = r"y|Y|yes|Yes|YES|true|True|TRUE|on|On|ON|n|N|no|No|NO|false|False|FALSE|off|Off|OFF"
_INT = r"[-+]?(?:0[bB]_*[01][01_]*|0[oO]?_*[0-7][0-7_]*|0[xX]_*[0-9a-fA-F][0-9a-fA-F_]*|0|[1-9][0-9_]*)"
_FLOAT = (
    r"[-+]?(?:\.[0-9][0-9_]*|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_TYPES = (
    ("bool", _BOOL, "yYnNtTfFoO"),
    ("int", _INT, "-+0123456789"),
    ("float", _FLOAT, "-+.0123456789"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", "<<", "<"),
)
"""Types of unquoted values, in the order in which they are tried: name, pattern, and possible first characters."""
_BOOL_TEXTS = frozenset({"y", "yes", "true", "on"})
_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1
_MAX_INTEGRAL = 1e21
"""Number below which a float without a fraction becomes an integer, as in JSON from kubectl."""


class ManifestLoader(yaml.SafeLoader):
    """Loader of Kubernetes manifests."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  # as in PyYAML


def documents(text: str) -> Iterator[Any]:
    """Yield the documents in YAML or JSON text.

    Raises:
        yaml.YAMLError, ValueError, RecursionError: the text isn't YAML.
    """
    yield from yaml.load_all(text, ManifestLoader)


def _bool(loader: yaml.SafeLoader, node: ScalarNode) -> bool:
    return str(loader.construct_scalar(node)).lower() in _BOOL_TEXTS


def _number(loader: yaml.SafeLoader, node: ScalarNode) -> int | float:
    text = str(loader.construct_scalar(node)).replace("_", "").lower()
    if re.fullmatch(_INT, text):
        digits = text.lstrip("+-")
        base = {"0b": 2, "0x": 16}.get(digits[:2], 8 if digits[:1] == "0" and len(digits) > 1 else 10)
        integer = int(text, base)
        if _MIN_INT <= integer <= _MAX_INT:
            return integer
    value = float(text.replace(".inf", "inf").replace(".nan", "nan"))
    return int(value) if value.is_integer() and abs(value) < _MAX_INTEGRAL else value


for _name, _pattern, _first in _TYPES:
    ManifestLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(f"^(?:{_pattern})$"), _first)
ManifestLoader.add_constructor("tag:yaml.org,2002:bool", _bool)
ManifestLoader.add_constructor("tag:yaml.org,2002:int", _number)
ManifestLoader.add_constructor("tag:yaml.org,2002:float", _number)
