"""Objects and logs without what should stay at home: secret values, credentials, and what only makes them long. Pure.

Names stay (of Secrets, of keys, of variables): they are what a reader needs. Values go if their name, or their own form, says that they
are secret. Nothing can know every secret: whoever passes a bundle on should look at it first.

A model may write anything into its log, so time grows with the length of a text and no faster: a repetition without a bound begins
at the edge of a run and never gives back what it took (`*+`), or stops at what the next one begins with. Of single characters
only: Python before 3.11.5 mistakes a group that is repeated so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

GONE = "(removed)"
_WORDS = (
    r"(?:pass(?:word|wd|phrase)?|pwd|secret|token|credential|auth(?:orization)?|x-(?:amz|goog)-signature"
    r"|(?:private|api|access|licen[cs]e|encryption|signing|account|shared)[-_]?key)(?=[-_.\d]|(?:s|value|id|key)?\Z)"
)
_NO_SECRETS = ("public", "primary", "foreign", "partition", "sort", "cache", "topology", "hash", "shard", "group")
# `OPENAI_KEY`, `x-functions-key`; not a bare `key`, which comes with names as well.
_KEYS = r"(?<=[a-z0-9][-_])" + "".join(rf"(?<!{word}[-_])" for word in _NO_SECRETS) + r"key(?=[_\d]|s?\Z)"
# `SLACK_WEBHOOK`; not `cert-manager-webhook`, a server's name in many a message.
_WEBHOOKS = r"(?<=[a-z0-9]_)webhook(?=[_\d]|s?\Z)|webhook[-_]?ur[li]"
_SECRET = re.compile(f"{_WORDS}|{_KEYS}|{_WEBHOOKS}", re.IGNORECASE)
"""In a name that says that its value is secret; not in `tokenizer`, not in `author`."""
_FOLDERS = {"PWD", "OLDPWD"}
"""A shell's variables that sound like a password."""
_HARMLESS = {"secretName", "secretKeyRef", "secretRef", "imagePullSecrets", "automountServiceAccountToken", "secret", "tokenExpirationSeconds", "serviceAccountToken", "projected"}  # fmt: skip
"""Fields of Kubernetes whose names sound so, and whose values are names."""
_DROPPED = {"managedFields", "kubectl.kubernetes.io/last-applied-configuration"}
_TOKENS = (
    r"(?:AKIA|ASIA)[A-Z0-9]{16}\b",  # Amazon
    r"hf_[A-Za-z0-9]{16,}+",  # Hugging Face
    r"gh[a-z]_[A-Za-z0-9]{16,}+|github_pat_\w{16,}+",
    r"glpat-[\w-]{16,}+",  # GitLab
    r"sk-(?:(?:ant|proj|svcacct|admin|live|test)-[\w-]{4,}+|[\w-]{16,}+)",  # Anthropic, OpenAI and others
    r"nvapi-[\w-]{16,}+",  # NVIDIA NGC
    r"xox[a-z]-[\w-]{10,}+",  # Slack
    r"AIza[\w-]{30,}+",  # Google
)
"""Credentials that are known by how they begin."""
_IN_TEXT = (
    (
        re.compile(
            r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL
        ),
        GONE,
    ),
    # Before the names: what comes after `Authorization:` is two words.
    (re.compile(r"(?i)\b(bearer|basic)\s++[A-Za-z0-9._~+/=-]{8,}+"), rf"\1 {GONE}"),
    (re.compile(r"(?<!\w)(\w++://)[^/\s:@]*+:[^/\s@]++@"), rf"\1{GONE}@"),
    (re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(_TOKENS)})"), GONE),
    (re.compile(r"(?i)(\bhooks\.slack\.com/[a-z]{1,20}/)[^\s\"'<>]++"), rf"\1{GONE}"),
    # Of an URL that is signed; `&` as HTML and JSON write it, too.
    (
        re.compile(r"(?i)((?:[?&;]|\\u0026)(?:sig|signature|x-(?:amz|goog)-signature|key)=)[^\s\"'&#\\]++"),
        rf"\1{GONE}",
    ),
    # By itself only if it is as long as one: a process ends with `sig=9`, a function has a signature.
    (
        re.compile(r"(?i)(?<![\w./-])(sig(?:nature)?[\"']?+\s*+[:=]\s*+[\"']?+)[A-Za-z0-9+/_%-]{20,}+=*+"),
        rf"\1{GONE}",
    ),
)
_PART = re.compile(r"(?<![\w-])[\w-]{11,}+(?=\.[\w-]{8,}+\.)")
_TWO_PARTS = re.compile(r"\.[\w-]++\.[\w-]*+")
"""Of the three that a JSON web token has; the first begins with `eyJ`."""
_PARAMETER = re.compile(
    r"""(?i)(key\s*+:\s*+"([^"]*+)"\s*+,?\s*+value\s*+:?\s*+\{\s*+string_value\s*+:\s*+)"[^"]*+\""""
)
"""In a config.pbtxt."""
_NAME = re.compile(r"""(?<![\w./-])([\w./-]++)\\*+["']?+\s*+[:=]\s*+""")
_QUOTE = re.compile(r"""\\*+["']""")
_VALUE = re.compile(r"""[^\s"',;&}]++""")
"""It ends with a space, a quote, a comma or the line."""


def text(value: str) -> str:
    """A text without credentials."""
    for pattern, put in _IN_TEXT:
        value = pattern.sub(put, value)
    return _named(_PARAMETER.sub(_parameter, _without_web_tokens(value)))


def _without_web_tokens(value: str) -> str:
    """Whatever stands right before one stays."""
    parts: list[str] = []
    done = at = 0
    while part := _PART.search(value, at):
        at = part.end()
        begin = value.find("eyJ", part.start(), at - 8)
        if begin < 0 or (rest := _TWO_PARTS.match(value, at)) is None:
            continue
        parts += [value[done:begin], GONE]
        done = at = rest.end()
    return "".join([*parts, value[done:]])


def _parameter(found: re.Match[str]) -> str:
    return f'{found[1]}"{GONE}"' if _SECRET.search(found[2]) else found[0]


def _named(value: str) -> str:
    """Without values that follow a name of a secret, in any of the usual forms."""
    parts: list[str] = []
    done = at = 0
    # One after the other, for the value of a harmless name may be a text with names in it.
    while name := _NAME.search(value, at):
        at = name.end()
        # The name first: to look at each value would read the rest of a long one again and again.
        if not _SECRET.search(name[1]):
            continue
        if quote := _QUOTE.match(value, at):
            at = quote.end()
        secret = _VALUE.match(value, at)
        if secret is None or not _is_secret(name[1], secret[0]):
            continue
        end = secret.end()
        if value[end : end + 1] in {'"', "'"}:
            end = at + len(secret[0].rstrip("\\"))  # JSON in JSON: the backslash is the quote's
        if end > at:
            parts += [value[done:at], GONE]
            done = end
        at = secret.end()
    return "".join([*parts, value[done:]])


def _is_secret(name: str, value: str) -> bool:
    if name in _FOLDERS and value.startswith(("/", "~")):
        return False
    return _SECRET.search(name) is not None


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
        if "name" in value and isinstance(value.get("value"), str) and _is_secret(str(value["name"]), value["value"]):
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
    if isinstance(value, str) and key not in _HARMLESS and key != "name" and _is_secret(key, value):
        return GONE
    if isinstance(value, Mapping) and set(value) == {"string_value"} and _SECRET.search(key):
        return {"string_value": GONE}  # a parameter of a model's configuration
    return _of(value)
