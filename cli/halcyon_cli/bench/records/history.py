"""History of a model's measurements: a ConfigMap with the ten newest summaries. Pure.

The ModelDeployment owns the ConfigMap, so Kubernetes deletes them together. A summary is the document without its
timeline, limited to 20 KiB, so that ten fit into one ConfigMap.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from halcyon.api.types import API_VERSION, GROUP, KIND
from halcyon_measure.results.document import BenchDocument

Json = Mapping[str, Any]

HISTORY_LABEL = f"{GROUP}/bench-history"
MAX_ENTRIES = 10
MAX_SUMMARY_BYTES = 20 * 1024


def name(model: str) -> str:
    """Return the name of the ConfigMap with a model's history."""
    return f"{model}-bench-history"


def summary(document: BenchDocument) -> str:
    """Return the document as one line of JSON, without its timeline, and shortened until it is within the size limit.

    The result is still a valid document: lists become shorter, and optional parts are omitted, the largest first.
    """
    fields = document.model_dump(mode="json") | {"timeline": []}
    optional = [name for name, field in BenchDocument.model_fields.items() if field.default is None and name != "place"]
    optional.sort(key=lambda name: -len(json.dumps(fields[name])))
    steps = [{"failures": fields["failures"][:3]}, {"pods": fields["pods"][:10]}, *({name: None} for name in optional)]
    for step in ({}, *steps):
        fields |= step
        text = json.dumps(fields, separators=(",", ":"))
        if len(text.encode()) <= MAX_SUMMARY_BYTES:
            break
    return text


def key(document: BenchDocument) -> str:
    """Return the key of a summary in the ConfigMap. The alphabetical order of keys is also chronological."""
    return re.sub(r"[^0-9TZ]", "", document.made_at) + ".json"


def extended(model: Json, stored: Json | None, document: BenchDocument) -> dict[str, Any]:
    """Return the ConfigMap with one more summary, limited to the ten newest.

    It keeps the resource version of the stored ConfigMap, so that a concurrent write is detected.
    """
    before = dict((stored or {}).get("data") or {})
    # Two measurements can end in the same second, and the clocks of nodes differ. The new result is always the newest.
    new_key, newest_key = key(document), max(before, default="")
    if new_key <= newest_key:
        new_key = _next_key(newest_key)
    data = before | {new_key: summary(document)}
    newest = {entry_key: data[entry_key] for entry_key in sorted(data)[-MAX_ENTRIES:]}
    meta = model["metadata"]
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": meta["name"], "uid": meta["uid"]}
    metadata: dict[str, Any] = {
        "namespace": meta.get("namespace"),
        "name": name(str(meta["name"])),
        "labels": {HISTORY_LABEL: str(meta["name"]), "app.kubernetes.io/managed-by": "halcyon"},
        "ownerReferences": [owner],
    }
    if stored is not None:
        metadata["resourceVersion"] = stored["metadata"]["resourceVersion"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": newest}


def _next_key(newest: str) -> str:
    """Return a key that follows the newest one in alphabetical order."""
    stem = newest.removesuffix(".json")
    base, separator, number = stem.rpartition("x")
    if not (separator and number.isdecimal()):
        base, number = stem, "0"
    return f"{base}x{int(number) + 1:04d}.json"


def entries(stored: Json | None) -> list[dict[str, Any]]:
    """Return the summaries in a ConfigMap, newest first. Invalid summaries are omitted."""
    data = (stored or {}).get("data") or {}
    summaries = []
    for entry_key in sorted(data, reverse=True):
        try:
            fields = json.loads(data[entry_key])
        except ValueError:
            continue
        if isinstance(fields, dict) and fields.get("version") == 1:
            summaries.append(fields)
    return summaries
