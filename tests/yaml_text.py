"""YAML of the repository's files, by libyaml: Python's own parser takes a second for a CRD, and libyaml a tenth of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml


def loaded(text: str) -> Any:  # any YAML value
    """Return the only document of a text, as `yaml.safe_load` does."""
    return yaml.load(text, yaml.CSafeLoader)


def all_loaded(text: str) -> Iterator[Any]:
    """Yield the documents of a text, as `yaml.safe_load_all` does."""
    return yaml.load_all(text, yaml.CSafeLoader)
