"""Objects in a manifest of `halcyon plan`, from its documents and from the items of a List. Pure.

Out of scope: selecting the object to plan (`commands.plan`), and findings with line numbers (`lint`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml

from halcyon_cli import manifest_loader
from halcyon_cli.errors import InputError


def objects(text: str, file: str) -> list[dict[str, Any]]:
    """Return the objects in YAML or JSON text, as `kubectl get -o yaml` and Helm print them.

    Raises:
        InputError: the text isn't YAML. The message names the file.
    """
    try:
        parsed = [obj for document in manifest_loader.documents(text) for obj in _items(document)]
        for obj in parsed:
            json.dumps(obj, default=str, skipkeys=True)
    except yaml.YAMLError as error:
        raise InputError(f"{file}: invalid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise InputError(f"{file}: invalid YAML: nested too deeply") from None
    except ValueError as error:
        if "Circular" in str(error):
            raise InputError(f"{file}: invalid YAML: an alias refers to an object that contains it") from None
        # Such as a date with month 13.
        raise InputError(f"{file}: invalid YAML: {error}; if it is text, quote it, for example '2026-13-01'") from None
    return parsed


def _items(document: Any) -> Iterator[dict[str, Any]]:  # any YAML
    if not isinstance(document, dict):
        return
    items = document.get("items")
    if str(document.get("kind")).endswith("List") and isinstance(items, list):
        for item in items:
            yield from _items(item)
    else:
        yield document
