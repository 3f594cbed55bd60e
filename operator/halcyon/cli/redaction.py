"""Objects and logs without what should stay at home: secret values, credentials, and what only makes them long. Pure.

Names stay (of Secrets, of keys, of variables): they are what a reader needs. Values go where their name, or their own form, says that they
are secret. Nothing can know every secret: whoever passes a bundle on should look at it first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

GONE = "(removed)"
_WORDS = (
    r"(?:pass(?:word|wd|phrase)?|secret|token|credential|private[-_]?key|api[-_]?key|access[-_]?key|auth(?:orization)?)"
)
_KEY = rf"[\w./-]*{_WORDS}(?:[-_.\d][\w./-]*|s|value|id|key)?"
"""A name that says that its value is secret; not `tokenizer`, not `author`."""
_SECRET_NAME = re.compile(_KEY, re.IGNORECASE)
_HARMLESS = {"secretName", "secretKeyRef", "secretRef", "imagePullSecrets", "automountServiceAccountToken", "secret", "tokenExpirationSeconds", "serviceAccountToken", "projected"}  # fmt: skip
"""Fields of Kubernetes whose names sound so, and whose values are names."""
_DROPPED = {"managedFields", "kubectl.kubernetes.io/last-applied-configuration"}
_IN_TEXT = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), GONE),
    # Before the names: what comes after `Authorization:` is two words.
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"), rf"\1 {GONE}"),
    (re.compile(r"(\w+://)[^/\s:@]+:[^/\s@]+@"), rf"\1{GONE}@"),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), GONE),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"), GONE),
    # A parameter in a config.pbtxt.
    (
        re.compile(rf"""(?i)(key\s*:\s*"{_KEY}"\s*,?\s*value\s*:?\s*\{{\s*string_value\s*:\s*)"[^"]*\""""),
        rf'\1"{GONE}"',
    ),
    # A name and its value, in any of the usual forms. The value ends with a space, a quote, a comma or the line.
    (re.compile(rf"""(?i)(?<![\w./-])({_KEY}["']?\s*[:=]\s*["']?)(?!\s)[^\s"',;&}}]+"""), rf"\1{GONE}"),
)


def text(value: str) -> str:
    """A text without credentials."""
    for pattern, put in _IN_TEXT:
        value = pattern.sub(put, value)
    return value


def obj(value: Mapping[str, Any]) -> dict[str, Any]:
    """An object without secret values; of a Secret only its names are left."""
    plain: dict[str, Any] = _of(value)
    if plain.get("kind") == "Secret":
        for part in ("data", "stringData"):
            if isinstance(plain.get(part), dict):
                plain[part] = dict.fromkeys(plain[part], GONE)
    return plain


def _of(value: Any) -> Any:
    if isinstance(value, Mapping):
        if "name" in value and isinstance(value.get("value"), str) and _SECRET_NAME.fullmatch(str(value["name"])):
            value = {**value, "value": GONE}  # an environment variable
        return {str(key): _under(str(key), below) for key, below in value.items() if key not in _DROPPED}
    if isinstance(value, list | tuple):
        return [_of(one) for one in value]
    return _of_text(value) if isinstance(value, str) else value


def _of_text(value: str) -> str:
    """A text in an object: JSON is gone through as JSON, for a name and its value may stand apart in it."""
    if value.lstrip().startswith(("{", "[")):
        try:
            return json.dumps(_of(json.loads(value)), ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
    return text(value)


def _under(key: str, value: Any) -> Any:
    if isinstance(value, str) and key not in _HARMLESS and key != "name" and _SECRET_NAME.fullmatch(key):
        return GONE
    if isinstance(value, Mapping) and set(value) == {"string_value"} and _SECRET_NAME.fullmatch(key):
        return {"string_value": GONE}  # a parameter of a model's configuration
    return _of(value)
