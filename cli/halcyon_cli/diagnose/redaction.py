"""Redaction of objects and logs: removes secret values, credentials, and long fields that don't help a diagnosis. Pure.

Names of Secrets, keys and variables stay, because readers need them. A value is removed if its name or its own format
marks it as secret. No rule recognizes every secret, so a bundle must be reviewed before it is shared.

A model can write any text to its log, so the run time must be linear in the length of a text. Every unbounded
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
_CONTENT = r"s?[-_.]?(?:json|ya?ml|base64|b64|data|pem|raw)\Z"
"""Pattern of the end of a name that describes the encoding of the value, as in `API_KEYS_JSON`."""
_SENSITIVE = (
    r"(?:(?:pass(?:word|wd|phrase)?|pwd|secret|credential|auth(?:orization)?|x-(?:amz|goog)-signature"
    r"|(?:private|api|access|client|licen[cs]e|encryption|signing|account|shared)[-_]?key)(?:(?=s_)|(?=END))|token(?=END))"
).replace("END", rf"[-_.\d]|(?:s|value|id|key)?\Z|{_CONTENT}")
_NOT_SECRET = (
    "public",
    "primary",
    "foreign",
    "partition",
    "sort",
    "cache",
    "topology",
    "hash",
    "shard",
    "group",
    "num",
)
# Matches `OPENAI_KEY` and `x-functions-key`, but not a bare `key`, which is often just a name.
_KEYS = (
    r"(?<=[a-z0-9][-_])"
    + "".join(rf"(?<!{prefix}[-_])" for prefix in _NOT_SECRET)
    + rf"key(?=[_\d]|s?\Z|s_|{_CONTENT})"
)
# Matches `SLACK_WEBHOOK`, but not `cert-manager-webhook`, a server name in many messages.
_WEBHOOKS = r"(?<=[a-z0-9]_)webhook(?=[_\d]|s?\Z)|webhook[-_]?ur[li]"
_SECRET = re.compile(f"{_SENSITIVE}|{_KEYS}|{_WEBHOOKS}", re.IGNORECASE)
"""Pattern of names whose values are secret. It doesn't match words such as `tokenizer` or `author`."""
_FOLDERS = {"PWD", "OLDPWD"}
"""Shell variables whose values are folders, although their names look like those of passwords."""
_NAME_FIELDS = {"secretName", "secretKeyRef", "secretRef", "imagePullSecrets", "automountServiceAccountToken", "secret", "tokenExpirationSeconds", "serviceAccountToken", "projected"}  # fmt: skip
"""Fields of Kubernetes objects that match the pattern, although their values are names of objects and not secrets."""
_NAMES_IN_TEXT = {"imagePullSecrets", "serviceAccountToken"}
_NUMBER = re.compile(r"\d{1,7}(?:\.\d{1,7})?|true|false|null", re.IGNORECASE)
"""Pattern of values that aren't secret even if their names look secret: numbers of tokens (`max_tokens`), token IDs and
switches."""
_NEVER_COUNTED = re.compile(r"pass|pwd|secret|key|credential", re.IGNORECASE)
"""Pattern of names whose values are secret even if they are numbers."""
_DROPPED = {"managedFields", "kubectl.kubernetes.io/last-applied-configuration"}
_TOKENS = (
    r"(?:AKIA|ASIA)[A-Z0-9]{16}\b|(?:AKID|LTAI|AQVN|AKCp|ATBB)\w{16,}+",  # Amazon, Tencent, Alibaba, Yandex, JFrog, Bitbucket
    r"AT[AC]TT3[\w-]{16,}+(?:=[0-9A-F]{8})?",  # Atlassian, Bitbucket
    r"AIza[\w-]{30,}+|ya29\.[\w-]{16,}+|GOCSPX-[\w-]{16,}+|1//0[\w-]{24,}+|AQ\.Ab[\w-]{24,}+",  # Google
    r"sha256~[\w-]{32,}+|k8s-aws-v1\.[\w-]{16,}+",  # OpenShift, EKS
    r"dckr_[op]at_[\w-]{20,}+|dt0c01\.[A-Z0-9]{24}\.[A-Z0-9]{20,}+|tskey-[a-z]{2,12}-[\w-]{16,}+",  # Docker, Dynatrace, Tailscale
    r"[A-Za-z0-9_~.-]{3}\dQ~[\w~.-]{31,}+",  # Azure
    r"(?:do[opr]_v1|hf|api_org|sbp|pscale_\w{3,6}|rubygems|wandb_v1|fm2|ops|op_\w{3}|ntn|lin_api)_[A-Za-z0-9]{16,}+",
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
_USER_OPTION = r"(?<![\w-])((?:-[uU]|--(?:proxy-)?user)[ =]{1,4}"
"""Pattern of curl's option for user and password. A short number after the colon is not a password but a port or a
group."""
_USER_OPTIONS = {"-u", "-U", "--user", "--proxy-user"}
_IN_TEXT = (
    (
        re.compile(
            r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
            re.DOTALL,
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
    (re.compile(rf"{_USER_OPTION}[^\s\"':/@]{{0,100}}:)(?![:/]|\d{{1,5}}(?!\w))[^\s\"']++"), rf"\1{REMOVED}"),
    (
        re.compile(rf"{_USER_OPTION}\\*+[\"'][^\s\"':/@]{{0,100}}:)(?!//|\d{{1,5}}(?!\w))[^\"'\\\r\n]++"),
        rf"\1{REMOVED}",
    ),
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
"""Pattern of the second and third part of a JSON web token (JWT). The first part starts with `eyJ`."""
_PARAMETER = re.compile(
    r"""(?i)(key\s*+:\s*+"([^"]*+)"\s*+,?\s*+value\s*+:?\s*+\{\s*+string_value\s*+:\s*+)"([^"]*+)\""""
)
"""Pattern of a parameter in a config.pbtxt."""
_ELEMENT = re.compile(r"<([\w:.-]++)(?:\s[^<>]{0,200})?>(?:<!\[CDATA\[)?+([^<]++)(?=</)")
"""Pattern of an XML element with text."""
_NAME = re.compile(r"""(?<![\w./-])([\w./-]++)\\*+["']?+\]?+\s*+[:=]\s*+""")
_OPTION = re.compile(r"""(?<![\w-])--?+([A-Za-z][\w-]*+)(?: {1,4}+|\\*+["'], {0,4}+(?=\\*+["']))(?=[^\s-])""")
"""Pattern of a command line option whose value is the next word, or the next string of a list."""
_WORD = re.compile(r"""[^\s"']++""")
_QUOTE = re.compile(r"""[bBrRuU]{0,2}(\\*+["'])""")
"""Pattern of the quote before a value, including the prefix of Python's bytes literals."""
_BLOCK = re.compile(r"[|>][-+\d]{0,2}[ \t]*+\r?(\n|(?:\\r)?\\n)")
"""Pattern of the start of a YAML block scalar, whose lines are the value. In JSON, its line end is escaped."""
_LINE = re.compile(r"( *+)[^\n]*+")
_ESCAPED_LINE = re.compile(r'( *+)(?:[^"\\\n]|\\[^n])*')
_LIST = re.compile(r"\[[\s\[]*+")
_BEFORE_ITEM = re.compile(r"\s*+,[\s\[]*+|[ \t]++\[?+|")
_VALUE = re.compile(r"""[^\s"',;&}]++""")
"""Pattern of a value without quotes. It ends at a space, a quote, a comma, a semicolon, & or a closing brace."""
_ITEM = re.compile(r"""[^\s"',;&{}\[\]]++""")
"""Pattern of an item without quotes in a list."""
_MAX_QUOTED = 1000
"""Maximum length of a quoted value. A quote that isn't closed within this length counts as part of the text."""


def text(value: str) -> str:
    """Return the text without credentials."""
    for pattern, replacement in _IN_TEXT:
        value = pattern.sub(replacement, value)
    value = _PARAMETER.sub(_parameter, _without_web_tokens(value))
    return _without_named_secrets(_without_options(_ELEMENT.sub(_element, value)))


def _without_web_tokens(value: str) -> str:
    """Remove JSON web tokens, but keep the text directly before them."""
    parts: list[str] = []
    done = at = 0
    while part := _PART.search(value, at):
        at = part.end()
        begin = value.find("eyJ", part.start(), at - 8)
        if begin < 0 or (tail := _TWO_PARTS.match(value, at)) is None:
            continue
        parts += [value[done:begin], REMOVED]
        done = at = tail.end()
    return "".join([*parts, value[done:]])


def _parameter(match: re.Match[str]) -> str:
    return f'{match[1]}"{REMOVED}"' if _is_secret(match[2], match[3]) else match[0]


def _element(match: re.Match[str]) -> str:
    secret = match[2].strip()
    return match[0].removesuffix(match[2]) + REMOVED if secret and _is_secret(match[1], secret) else match[0]


def _without_options(value: str) -> str:
    """Remove the secret values of options on a command line."""
    parts: list[str] = []
    done = at = 0
    while option := _OPTION.search(value, at):
        at = option.end()
        span = _value(value, at, _WORD) if _SECRET.search(option[1]) else None
        if span and _is_option_value(option[1], value[span[0] : span[1]]):
            parts += [value[done : span[0]], REMOVED]
            done = at = span[1]
    return "".join([*parts, value[done:]])


def _is_option_value(name: str, value: str) -> bool:
    return value != "" and not value.startswith("-") and _is_secret(name, value)


def _without_named_secrets(value: str) -> str:
    """Remove the values after the names of secrets, in any common notation."""
    parts: list[str] = []
    done = at = 0
    # Search for one name at a time, because the value of a harmless name may itself contain names.
    while name := _NAME.search(value, at):
        at = name.end()
        # Check the name first: matching the value each time would read the rest of a long one repeatedly.
        if not _is_secret(name[1], "") or (name[1].startswith("/") and ":" in name[0]):
            continue  # a path with a colon precedes an error
        if start := _LIST.match(value, at):
            spans, at = _items(value, start.end())
        elif block := _BLOCK.match(value, at):
            spans = [_block(value, name.start(), block)]
        else:
            span = _value(value, at, _VALUE)
            spans = [span[:2]] if span else []
        for begin, end in spans:
            if begin < end and _is_secret(name[1], value[begin:end]):
                parts += [value[done:begin], REMOVED]
                done = end
                at = max(at, end)
    return "".join([*parts, value[done:]])


def _value(value: str, at: int, plain: re.Pattern[str]) -> tuple[int, int, int] | None:
    """Return the start and the end of the value at `at`, and the position after its quote; None if there is no value.

    `plain` is the pattern of a value without quotes.
    """
    if quote := _QUOTE.match(value, at):
        at = quote.end()
        close = _closing(value, quote[1], at)
        if close >= 0:
            return at, close, close + len(quote[1])
    word = plain.match(value, at)
    if word is None:
        return None
    end = word.end()
    if value[end : end + 1] in {'"', "'"}:
        end = at + len(word[0].rstrip("\\"))  # JSON inside JSON: a backslash escapes the quote
    return at, end, word.end()


def _items(value: str, at: int) -> tuple[list[tuple[int, int]], int]:
    """Return the start and end of each item of the list whose first item is at `at`, and the end of the list."""
    spans: list[tuple[int, int]] = []
    while before := _BEFORE_ITEM.match(value, at):
        span = _value(value, before.end(), _ITEM)
        if span is None:
            break
        spans.append(span[:2])
        at = span[2]
    return spans, at


def _block(value: str, name: int, block: re.Match[str]) -> tuple[int, int]:
    """Return the start and end of a YAML block scalar. Its lines are indented more than its name, at `name`."""
    line_break = block[1][-2:]
    pattern = _LINE if line_break == "\n" else _ESCAPED_LINE
    start = value.rfind(line_break, 0, name)
    before = value[start + len(line_break) if start >= 0 else 0 : name]
    indent = len(before) - (len(before.lstrip()) if before.strip(" -") else 0)
    end = at = block.end()
    while line := pattern.match(value, at):
        if line[0].strip() and len(line[1]) <= indent:
            break
        end = line.end()
        if not value.startswith(line_break, end):
            break
        at = end + len(line_break)
    return block.end(), end


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
    """Return the object without secret values. A Secret keeps only the names of its keys."""
    plain: dict[str, Any] = _redact(value)
    if plain.get("kind") == "Secret":
        for part in ("data", "stringData"):
            if isinstance(plain.get(part), dict):
                plain[part] = dict.fromkeys(plain[part], REMOVED)
    return plain


def _redact(value: Any) -> Any:
    if isinstance(value, Mapping):
        if "name" in value and "value" in value:
            value = {**value, "value": _named(str(value["name"]), value["value"])}  # an environment variable
        return {str(key): _redact_field(str(key), below) for key, below in value.items() if key not in _DROPPED}
    if isinstance(value, list | tuple):
        # An argument may be the value of the option before it.
        return [
            _argument(before, item) if isinstance(before, str) and isinstance(item, str) else _redact(item)
            for before, item in zip((None, *value), value, strict=False)
        ]
    return _redact_string(value) if isinstance(value, str) else value


def _argument(before: str, value: str) -> str:
    """Return a string in a list without secrets. The string may be the value of the option before it."""
    if before in _USER_OPTIONS:
        return text(f"{before} {value}").removeprefix(f"{before} ")
    if before.startswith("-") and "=" not in before and _is_option_value(before.lstrip("-"), value):
        return REMOVED
    return _redact_string(value)


def _redact_string(value: str) -> str:
    """Return a string in an object without secrets.

    If the string contains JSON, it is parsed, because a name and its value may be far apart.
    """
    if value.lstrip().startswith(("{", "[")):
        try:
            return json.dumps(_redact(json.loads(value)), ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
    return text(value)


def _redact_field(key: str, value: Any) -> Any:
    if key in _NAME_FIELDS or key == "name":
        return _redact(value)
    if isinstance(value, Mapping) and set(value) == {"string_value"}:
        return {"string_value": _named(key, value["string_value"])}  # a parameter of a model's configuration
    return _named(key, value)


def _named(name: str, value: Any) -> Any:
    """Return the value that has this name, without secrets. The items of a list have the name of the list."""
    if isinstance(value, str):
        return REMOVED if _is_secret(name, value) else _redact_string(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        # Unlike in text, a large number of tokens is known to be a number.
        return REMOVED if _NEVER_COUNTED.search(name) and _is_secret(name, str(value)) else value
    if isinstance(value, list | tuple) and name != "secrets" and _is_secret(name, ""):  # names of Secrets
        return [_named(name, item) for item in value]
    return _redact(value)
