"""Results of `halcyon bench` for a model, from the ConfigMap in which the command stores them. Pure."""

from __future__ import annotations

from typing import Any

import orjson

from halcyon.dashboard.ports import Object

MAX_RESULTS = 10
MAX_RESULT_CHARS = 64 * 1024
"""Maximum size of a result that is shown, in characters. The command writes at most 20 KiB."""


def config_map_name(model: str) -> str:
    """Return the name of the ConfigMap with a model's results."""
    return f"{model}-bench-history"


def results(stored: Object | None, model: Object) -> list[dict[str, Any]]:
    """Return the results in the ConfigMap `stored`, newest first. Results that can't be read are omitted.

    The ConfigMap is ignored unless the ModelDeployment `model` owns it, because another user may have created it.
    """
    metadata = (stored or {}).get("metadata") or {}
    owners = {owner.get("uid") for owner in metadata.get("ownerReferences") or []}
    if stored is None or model["metadata"].get("uid") not in owners:
        return []
    documents = []
    for _, text in sorted((stored.get("data") or {}).items(), reverse=True)[:MAX_RESULTS]:
        try:
            document = orjson.loads(text) if len(text) <= MAX_RESULT_CHARS else None
        except ValueError:
            continue
        if isinstance(document, dict) and document.get("version") == 1:
            documents.append(document)
    return documents
