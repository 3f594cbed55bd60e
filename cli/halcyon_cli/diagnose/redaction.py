"""Redaction of objects and logs: removes secret values, credentials, and long fields of no use. Pure.

Names of Secrets, keys and variables stay, because readers need them. A value is removed if its name or its own format
marks it as secret. No rule recognizes every secret, so a bundle must be reviewed before it is shared.

A model can write anything into its log, so the run time must be linear in the length of a text. Every unbounded
repetition starts at a word boundary and never backtracks (`*+`), or ends before a character with which the next match
starts. Possessive repetition is used only for single characters, because Python before 3.11.5 has a bug with possessive
groups.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

REMOVED = "(removed)"
_SENSITIVE = (
    r"(?:pass(?:word|wd|phrase)?|pwd|secret|token|credential|auth(?:orization)?|x-(?:amz|goog)-signature"
    r"|(?:private|api|access|licen[cs]e|encryption|signing|account|shared)[-_]?key)(?=[-_.\d]|(?:s|value|id|key)?\Z)"
)
_NOT_SECRET = ("public", "primary", "foreign", "partition", "sort", "cache", "topology", "hash", "shard", "group")
# Matches `OPENAI_KEY` and `x-functions-key`, but not a bare `key`, which is often just a name.
_KEYS = r"(?<=[a-z0-9][-_])" + "".join(rf"(?<!{prefix}[-_])" for prefix in _NOT_SECRET) + r"key(?=[_\d]|s?\Z)"
# Matches `SLACK_WEBHOOK`, but not `cert-manager-webhook`, a server name in many messages.
_WEBHOOKS = r"(?<=[a-z0-9]_)webhook(?=[_\d]|s?\Z)|webhook[-_]?ur[li]"
_SECRET = re.compile(f"{_SENSITIVE}|{_KEYS}|{_WEBHOOKS}", re.IGNORECASE)
"""Pattern of names whose values are secret. It doesn't match `tokenizer` or `author`."""
_FOLDERS = {"PWD", "OLDPWD"}
"""Shell variables whose names look like passwords, but whose values are folders."""
_NAME_FIELDS = {"secretName", "secretKeyRef", "secretRef", "imagePullSecrets", "automountServiceAccountToken", "secret", "tokenExpirationSeconds", "serviceAccountToken", "projected"}  # fmt: skip
"""Fields of Kubernetes objects that match the pattern, although their values are names and not secrets."""
_NAMES_IN_TEXT = {"imagePullSecrets", "serviceAccountToken"}
_NUMBER = re.compile(r"\d{1,7}(?:\.\d{1,7})?|true|false|null", re.IGNORECASE)
"""Pattern of names that look secret, although their values aren't. They are numbers of tokens (`max_tokens`), token ids
and switches."""
_NEVER_COUNTED = re.compile(r"pass|pwd|secret|key|credential", re.IGNORECASE)
"""Pattern of names whose values are secret even if they are numbers."""
_DROPPED = {"managedFields", "kubectl.kubernetes.io/last-applied-configuration"}
_TOKENS = (
    r"(?:AKIA|ASIA)[A-Z0-9]{16}\b|(?:AKID|LTAI|AQVN|AKCp|ATBB|ATATT)\w{16,}+",  # Amazon, Tencent, Alibaba, Yandex, JFrog, Atlassian
    r"AIza[\w-]{30,}+|ya29\.[\w-]{16,}+|GOCSPX-[\w-]{16,}+|1//0[\w-]{24,}+",  # Google
    r"[A-Za-z0-9_~.-]{3}\dQ~[\w~.-]{31,}+",  # Azure
    r"(?:do[opr]_v1|hf|api_org|sbp|pscale_\w{3,6}|dckr_[op]at|rubygems|wandb_v1|fm2|ops|op_\w{3}|ntn|lin_api)_[A-Za-z0-9]{16,}+",
    r"(?:npm|r8|gsk|pcsk|lsv2_[ps][tk]|glsa|glc|sntry[su]|whsec|[rps]k_(?:live|test)|shp(?:at|ca|pa|ss))_[A-Za-z0-9]{20,}+\w*+",
    r"gh[a-z]_[A-Za-z0-9]{16,}+|github_pat_\w{16,}+",
    r"(?:gl[a-z]{2,6}|nvapi|HRKU|pypi|pplx|xai|pul|NRAK|PMAK|sq0[a-z]{3}|AGE-SECRET-KEY)-(?=[\w-]{0,60}\d)[\w-]{16,}+",
    r"sk-(?:(?:ant|proj|svcacct|admin|live|test)-[\w-]{4,}+|[\w-]{16,}+)",  # Anthropic, OpenAI and others
    r"x(?:ox[a-z]|app)-[\w-]{10,}+",  # Slack
    r"(?:dapi|SK)[0-9a-f]{32}\b|SG\.[\w-]{16,}+\.[\w-]{16,}+",  # Databricks, Twilio, SendGrid
    r"hv[bsr]\.[\w-]{20,}+|dp\.\w{2,5}\.(?:\w{2,35}\.)?[A-Za-z0-9]{24,}+|[A-Za-z0-9]{14}\.atlasv1\.[\w-]{16,}+",  # HashiCorp, Doppler
    r"(?:bot)?\d{8,10}:AA[\w-]{30,}+",  # Telegram
)
"""Patterns of credentials with a known prefix."""
_IN_TEXT = (
    (
        re.compile(
            r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL
        ),
        REMOVED,
    ),
    # Applied before the rule for names, because these values have several words.
    (re.compile(r"(?i)\b((?:authorization|cookie)\\*+[\"']?+\s*+[:=]\s*+\\*+[\"']?+)[^\r\n\"'\\]++"), rf"\1{REMOVED}"),
    # The word after `basic` or `bearer` in a sentence has neither capitals nor digits.
    (re.compile(r"\b((?i:bearer|basic))\s++(?=[a-z]{0,200}[A-Z0-9._~+/=-])[A-Za-z0-9._~+/=-]{8,}+"), rf"\1 {REMOVED}"),
    # A name without a password may be a token, if it is long.
    # A password may contain an @ that is not escaped.
    (
        re.compile(r"(?<!\w)(\w++://)(?:[^/\s:@]*+:[^/\s@]++(?:@[^/\s@\"'<>,;]++)*|[^/\s:@]{16,}+)@"),
        rf"\1{REMOVED}@",
    ),
    (re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(_TOKENS)})"), REMOVED),
    # The header with which Triton's restricted APIs are called, in Triton's arguments.
    (re.compile(r"(-restricted-(?:api|protocol)=[\w,-]++:[\w-]++=)[^\s\"']++"), rf"\1{REMOVED}"),
    (
        re.compile(
            r"(?i)(\b(?:hooks\.slack\.com/[a-z]{1,20}/|discord(?:app)?\.com/api/webhooks/|webhook\.office\.com/))[^\s\"'<>]++"
        ),
        rf"\1{REMOVED}",
    ),
    # A signature in a signed URL; `&` may be escaped as in HTML or JSON.
    (
        re.compile(r"(?i)((?:[?&;]|\\u0026)(?:sig|(?:[\w-]{1,20}-)?signature|key)=)[^\s\"'&#\\]++"),
        rf"\1{REMOVED}",
    ),
    # Outside a URL, only long values: logs contain text such as `sig=9` for a process that was killed.
    (
        re.compile(r"(?i)(?<![\w./-])(sig(?:nature)?[\"']?+\s*+[:=]\s*+[\"']?+)[A-Za-z0-9+/_%-]{20,}+=*+"),
        rf"\1{REMOVED}",
    ),
)
_PART = re.compile(r"(?<![\w-])[\w-]{11,}+(?=\.[\w-]{8,}+\.)")
_TWO_PARTS = re.compile(r"\.[\w-]++\.[\w-]*+")
"""Pattern of the second and third part of a JSON web token. The first part starts with `eyJ`."""
_PARAMETER = re.compile(
    r"""(?i)(key\s*+:\s*+"([^"]*+)"\s*+,?\s*+value\s*+:?\s*+\{\s*+string_value\s*+:\s*+)"([^"]*+)\""""
)
"""Pattern of a parameter in a config.pbtxt."""
_NAME = re.compile(r"""(?<![\w./-])([\w./-]++)\\*+["']?+\]?+\s*+[:=]\s*+""")
_OPTION = re.compile(r"(?<![\w-])(--?+([A-Za-z][\w-]*+) {1,4}+)([^\s\"'-][^\s\"']*+)")
"""Pattern of an option of a command line whose value is the next word."""
_QUOTE = re.compile(r"""\\*+["']""")
_VALUE = re.compile(r"""[^\s"',;&}]++""")
"""Pattern of a value without quotes. It ends at a space, a quote, a comma, a semicolon, & or a closing brace."""
_MAX_QUOTED = 1000
"""Maximum length of a value in quotes. A quote without an end within this length is part of the text."""


def text(value: str) -> str:
    """Return the text without credentials."""
    for pattern, replacement in _IN_TEXT:
        value = pattern.sub(replacement, value)
    value = _PARAMETER.sub(_parameter, _without_web_tokens(value))
    return _without_named_secrets(_OPTION.sub(_option, value))


def _without_web_tokens(value: str) -> str:
    """Remove JSON web tokens, but keep text directly in front of them."""
    parts: list[str] = []
    done = at = 0
    while part := _PART.search(value, at):
        at = part.end()
        begin = value.find("eyJ", part.start(), at - 8)
        if begin < 0 or (rest := _TWO_PARTS.match(value, at)) is None:
            continue
        parts += [value[done:begin], REMOVED]
        done = at = rest.end()
    return "".join([*parts, value[done:]])


def _parameter(match: re.Match[str]) -> str:
    return f'{match[1]}"{REMOVED}"' if _is_secret(match[2], match[3]) else match[0]


def _option(match: re.Match[str]) -> str:
    return f"{match[1]}{REMOVED}" if _is_secret(match[2], match[3]) else match[0]


def _without_named_secrets(value: str) -> str:
    """Remove the values that follow the name of a secret, in any common notation."""
    parts: list[str] = []
    done = at = 0
    # Search for one name at a time, because the value of a harmless name may itself contain names.
    while name := _NAME.search(value, at):
        at = name.end()
        # Check the name first: matching the value each time would read the rest of a long one repeatedly.
        if not _SECRET.search(name[1]) or (name[1].startswith("/") and ":" in name[0]):
            continue  # a path with a colon precedes an error
        if quote := _QUOTE.match(value, at):
            at = quote.end()
            close = _closing(value, quote[0], at)
            if close >= 0:
                if close > at and _is_secret(name[1], value[at:close]):
                    parts += [value[done:at], REMOVED]
                    done = at = close
                continue
        secret = _VALUE.match(value, at)
        if secret is None or not _is_secret(name[1], secret[0]):
            continue
        end = secret.end()
        if value[end : end + 1] in {'"', "'"}:
            end = at + len(secret[0].rstrip("\\"))  # JSON inside JSON: a backslash escapes the quote
        if end > at:
            parts += [value[done:at], REMOVED]
            done = end
        at = secret.end()
    return "".join([*parts, value[done:]])


def _closing(value: str, quote: str, at: int) -> int:
    """Return the position of the quote that ends a value on the same line; -1 if there is none.

    The value begins at `at`. A quote after a backslash is part of the value.
    """
    limit = at + _MAX_QUOTED
    line = value.find("\n", at, limit)
    limit = limit if line < 0 else line
    close = value.find(quote, at, limit)
    while close > at and value[close - 1] == "\\":
        close = value.find(quote, close + 1, limit)
    return close


def _is_secret(name: str, value: str) -> bool:
    if (name in _FOLDERS and value.startswith(("/", "~"))) or name in _NAMES_IN_TEXT:
        return False
    if _NUMBER.fullmatch(value) and not _NEVER_COUNTED.search(name):
        return False
    return _SECRET.search(name) is not None


def resource(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object without secret values. For a Secret, only the names of its keys stay."""
    plain: dict[str, Any] = _redact(value)
    if plain.get("kind") == "Secret":
        for part in ("data", "stringData"):
            if isinstance(plain.get(part), dict):
                plain[part] = dict.fromkeys(plain[part], REMOVED)
    return plain


def _redact(value: Any) -> Any:
    if isinstance(value, Mapping):
        if "name" in value and isinstance(value.get("value"), str) and _is_secret(str(value["name"]), value["value"]):
            value = {**value, "value": REMOVED}  # an environment variable
        return {str(key): _redact_field(str(key), below) for key, below in value.items() if key not in _DROPPED}
    if isinstance(value, list | tuple):
        # An argument may be the value of the option before it.
        return [
            REMOVED if isinstance(item, str) and _names_secret(before, item) else _redact(item)
            for before, item in zip((None, *value), value, strict=False)
        ]
    return _redact_string(value) if isinstance(value, str) else value


def _names_secret(option: Any, value: str) -> bool:
    is_option = isinstance(option, str) and option.startswith("-") and "=" not in option
    return is_option and not value.startswith("-") and _is_secret(option.lstrip("-"), value)


def _redact_string(value: str) -> str:
    """Return a string of an object without secrets.

    JSON in it is parsed, because a name and its value may be far apart.
    """
    if value.lstrip().startswith(("{", "[")):
        try:
            return json.dumps(_redact(json.loads(value)), ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
    return text(value)


def _redact_field(key: str, value: Any) -> Any:
    if isinstance(value, str) and key not in _NAME_FIELDS and key != "name" and _is_secret(key, value):
        return REMOVED
    if isinstance(value, Mapping) and set(value) == {"string_value"} and _is_secret(key, str(value["string_value"])):
        return {"string_value": REMOVED}  # a parameter of a model's configuration
    return _redact(value)
